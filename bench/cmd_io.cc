// `io`: one storage workload, swept over its lists of values.
#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/add_options.h"
#include "bench/commands.h"
#include "bench/io_sweep.h"
#include "bench/progress.h"
#include "bench/quantity.h"
#include "bench/storage_rig.h"
#include "bench/sustained.h"
#include "core/base/format.h"

namespace zoffload::bench {
namespace {

class IoCommand : public Command {
 public:
  const char* name() const override { return "io"; }
  const char* summary() const override {
    return "measure one storage workload on one or more drives";
  }
  const char* examples() const override {
    return "How fast does this drive read?\n"
           "  zoffload-bench io --path /mnt/nvme0\n"
           "Which block size and depth suit two drives used together, reading and writing?\n"
           "  zoffload-bench io --rw mixed --path /mnt/nvme0 --path /mnt/nvme1 \\\n"
           "      --block-size 256KiB,1MiB,4MiB --queue-depth 8,32 --output csv\n"
           "Where does writing slow down, and to what speed?\n"
           "  zoffload-bench io --rw write --sustained --max-write 500GB --path /mnt/nvme0\n";
  }

  void add_options(CLI::App& app, Options& options) override;
  zoffload::Result<ExitCode> run(Context& context) override;

 private:
  Status check(const Options& options) const;
  std::vector<std::string> plan(const Options& options) const;
  bool thresholds_met(Context& context) const;

  double read_share_ = 1;
  bool random_ = false;
  bool sustained_ = false;
  double min_read_ = 0;  // bytes per second; 0: none
  double min_write_ = 0;
};

void IoCommand::add_options(CLI::App& app, Options& options) {
  add_storage_options(app, options);
  add_measuring_options(app, options);
  add_budget_options(app, options);
  const char* const group = "Workload";
  add_read_share(app, read_share_, "read").group(group);
  add_flag(app, "--random", random_, "offsets in random order, not ascending").group(group);
  add_flag(app, "--sustained", sustained_,
           "write until the speed breaks in, at most --max-write; report both speeds")
      .group(group);
  add_rate(app, "--min-read", min_read_, "exit code 1 if reading is slower").group(group);
  add_rate(app, "--min-write", min_write_, "exit code 1 if writing is slower").group(group);
}

Status IoCommand::check(const Options& options) const {
  const auto invalid = [](const char* what) { return Status(Code::kInvalidArgument, what); };
  if (options.paths.empty()) return invalid("--path: a folder on the drive to measure is missing");
  if (min_read_ > 0 && read_share_ == 0) return invalid("--min-read: nothing is read");
  if (min_write_ > 0 && read_share_ == 1) return invalid("--min-write: nothing is written");
  if (options.runtime_s <= 0) return invalid("--runtime: must be above 0");
  if (!sustained_) return Status();
  ZO_TRY(check_sustained(options));
  if (read_share_ != 0) return invalid("--sustained: needs --rw write");
  if (options.max_write_bytes == 0) {
    return invalid("--sustained: needs --max-write, which says how much may be written");
  }
  return Status();
}

// What will be written and for how long, said before anything is done.
std::vector<std::string> IoCommand::plan(const Options& options) const {
  const SweepPlan sweep = plan_sweep(options);
  std::vector<std::string> lines;
  for (const std::string& path : options.paths) {
    lines.push_back(path + ": writes " + format_bytes(sweep.fill_bytes / options.paths.size()) +
                    " into files without a name");
  }
  const double seconds = sweep.runs * (options.runtime_s + options.warmup_s);
  std::string limit = options.max_write_bytes == 0
                          ? " (--max-write sets a limit)"
                          : ", at most " + format_bytes(options.max_write_bytes) + " in all";
  if (sustained_) {
    lines.push_back("then writes until the speed breaks in" + limit);
  } else if (read_share_ < 1) {
    lines.push_back("then writes for " + format_seconds(seconds) + limit);
  } else {
    lines.push_back("then reads for " + format_seconds(seconds));
  }
  return lines;
}

zoffload::Result<ExitCode> IoCommand::run(Context& context) {
  const Options& options = context.options();
  ZO_TRY(check(options));
  ZO_TRY(check_sweep(options));  // before the plan: what cannot be done is not promised
  const std::vector<std::string> lines = plan(options);
  context.document().summary["planned_fill_bytes"] = plan_sweep(options).fill_bytes;
  for (const std::string& line : lines) context.plan(line);
  if (options.dry_run) return ExitCode::kDone;
  const IoWorkload workload = {read_share_, random_};
  const Status measured =
      sustained_ ? measure_sustained(workload, context) : measure_sweep(workload, context);
  context.document().summary["written_bytes"] = context.written_bytes();
  ZO_TRY(measured);
  const Stop stop = context.stop();
  const bool at_its_limit = sustained_ && stop == Stop::kWriteBudget;
  if (stop != Stop::kNone && !at_its_limit) return context.end(stop);
  return thresholds_met(context) ? ExitCode::kDone : ExitCode::kThresholdFailed;
}

bool IoCommand::thresholds_met(Context& context) const {
  bool met = true;
  const auto require = [&](const bench::Result& result, const char* flag, double share,
                           double least) {
    const double rate = result.bandwidth.median() * share;
    if (least == 0 || rate >= least) return;
    met = false;
    context.warn(result.name + " at " + format_rate(rate) + " is below " + flag + " " +
                 format_rate(least));
  };
  for (const bench::Result& result : context.document().results) {
    require(result, "--min-read", read_share_, min_read_);
    require(result, "--min-write", 1 - read_share_, min_write_);
  }
  return met;
}

}  // namespace

std::unique_ptr<Command> make_io_command() { return std::make_unique<IoCommand>(); }

}  // namespace zoffload::bench
