// zoffload-bench tune: the best use of each path, and a config that says so.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/add_options.h"
#include "bench/commands.h"
#include "bench/output.h"
#include "bench/path_tuner.h"
#include "bench/quantity.h"
#include "bench/tuning_options.h"
#include "bench/tuning_rig.h"
#include "core/base/types.h"

namespace zoffload::bench {
namespace {

struct TunedPath {
  std::string path;
  std::string engine;  // that was in use
  Tuned tuned;
};

class TuneCommand final : public Command {
 public:
  const char* name() const override { return "tune"; }
  const char* summary() const override {
    return "best block size, queue depth, workers and engine of each path, as a config";
  }
  const char* examples() const override {
    return "What to put into the config for one drive.\n"
           "  zoffload-bench tune --path /mnt/nvme0\n"
           "Two drives, with little time and little wear.\n"
           "  zoffload-bench tune --path /mnt/nvme0 /mnt/nvme1 --budget 40s --max-write 16GiB\n"
           "Only the depth, of requests of 1 MiB through io_uring.\n"
           "  zoffload-bench tune --path /mnt/nvme0 --block-size 1MiB --workers 1 --engine uring\n";
  }

  void add_options(CLI::App& app, Options& options) override;
  zoffload::Result<ExitCode> run(Context& context) override;
  std::string print_table(const Document& document) const override;

 private:
  TuningOptions tuning_;
  TuneSpace space_;
  double read_share_ = 0.5;
  double gain_ = TuneSpace{}.gain - 1;
};

void TuneCommand::add_options(CLI::App& app, Options& options) {
  add_tuning_options(app, options, tuning_);
  const std::string group = "Search";
  add_sizes(app, "--block-size", space_.block_bytes, "bytes of one request: those to compare")
      .group(group);
  add_count(app, "--max-depth", space_.depth_max, "most requests in flight, per worker")
      .group(group);
  add_counts(app, "--workers", space_.workers, "threads that issue requests: those to compare")
      .group(group);
  add_read_share(app, read_share_, "mixed").group(group);
  add_percent(app, "--gain", gain_, "a faster setting must gain this much on a cheaper one")
      .group(group);
  add_count(app, "--repeats", space_.rounds, "rounds in which candidates are compared")
      .group(group);
}

Json choice_of(const TunedPath& path) {
  const Candidate& best = path.tuned.best;
  return {{"path", path.path},
          {"engine", path.engine},
          {"workers", best.workers},
          {"block_size_bytes", best.block_bytes},
          {"queue_depth", best.depth},
          {"bytes_per_s", path.tuned.bytes_per_s},
          {"complete", path.tuned.complete}};
}

// One config is for all paths: that of the path which needs the most in flight.
Json config_of(const std::vector<TunedPath>& paths) {
  const auto needs_less = [](const TunedPath& a, const TunedPath& b) {
    return a.tuned.best.in_flight_bytes() < b.tuned.best.in_flight_bytes();
  };
  const Candidate& best = std::max_element(paths.begin(), paths.end(), needs_less)->tuned.best;
  const bool is_auto = best.engine == IoEngine::kUring;  // what auto takes where it works
  Json folders = Json::array();
  for (const TunedPath& path : paths) folders.push_back(path.path);
  // DeepSpeed's defaults are left out: some have no effect here and would bring a warning.
  Json aio = {{"block_size", best.block_bytes}, {"queue_depth", best.depth}};
  if (best.workers > 1) aio["intra_op_parallelism"] = best.workers;
  return {{"zoffload",
           {{"nvme_path", folders}, {"io_engine", is_auto ? "auto" : io_engine_name(best.engine)}}},
          {"aio", std::move(aio)}};
}

zoffload::Result<ExitCode> TuneCommand::run(Context& context) {
  const Options& options = context.options();
  ZO_ASSIGN_OR_RETURN(const std::vector<std::string> paths, tuning_paths(options));
  ZO_ASSIGN_OR_RETURN(space_.engines, usable_engines(options.engines, context));
  for (uint64_t bytes : space_.block_bytes) {
    if (bytes % kPageBytes == 0) continue;
    return Status(Code::kInvalidArgument,
                  "--block-size " + std::to_string(bytes) + ": not a multiple of 4096");
  }
  ZO_TRY(check_tuning(paths, space_, context));
  if (options.dry_run) {
    plan_tuning(paths, context);
    return ExitCode::kDone;
  }
  Json& summary = context.document().summary;
  space_.gain = 1 + gain_;
  summary["objective"] = "bandwidth";
  summary["read_share"] = read_share_;
  summary["paths"] = Json::array();
  std::vector<TunedPath> tuned;
  Stop stopped = Stop::kNone;
  BudgetShares shares(options, paths.size());
  for (const std::string& path : paths) {
    TuningRig rig(path, space_, read_share_, shares.next(context), context);
    const Measure measure = [&rig](const Candidate& candidate) { return rig.measure(candidate); };
    ZO_ASSIGN_OR_RETURN(Tuned of_path, tune_path(space_, measure));
    if (!of_path.complete) stopped = rig.stopped();
    if (of_path.tried.empty()) break;
    const std::string engine = rig.engine_name(of_path.best);
    tuned.push_back({path, engine, std::move(of_path)});
    summary["paths"].push_back(choice_of(tuned.back()));
    context.document().config = config_of(tuned);
  }
  return context.end(stopped);
}

std::string TuneCommand::print_table(const Document& document) const {
  std::string text = bench::print_table(document);
  for (const Json& choice : document.summary.value("paths", Json::array())) {
    const auto workers = choice["workers"].get<uint32_t>();
    text += "\n" + choice["path"].get<std::string>() + ": " + choice["engine"].get<std::string>() +
            ", " + format_exact(choice["block_size_bytes"].get<uint64_t>()) + " x " +
            choice["queue_depth"].dump() +
            (workers > 1 ? " on each of " + std::to_string(workers) + " workers" : "") + ": " +
            format_rate(choice["bytes_per_s"].get<double>());
  }
  constexpr int kIndent = 2;
  constexpr auto kReplace = Json::error_handler_t::replace;
  if (!document.config.empty()) {
    text += "\n\n" + document.config.dump(kIndent, ' ', false, kReplace) + "\n";
  }
  return text;
}

}  // namespace

std::unique_ptr<Command> make_tune_command() { return std::make_unique<TuneCommand>(); }

}  // namespace zoffload::bench
