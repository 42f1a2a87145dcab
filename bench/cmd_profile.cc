// zoffload-bench profile: short runs of everything that a training step is made of, as the file
// that the engine and the planner read. A file is written only if all of it was measured.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/add_options.h"
#include "bench/commands.h"
#include "bench/link_rig.h"
#include "bench/memory_bound.h"
#include "bench/model_shape.h"
#include "bench/output.h"
#include "bench/path_tuner.h"
#include "bench/progress.h"
#include "bench/quantity.h"
#include "bench/short_runs.h"
#include "bench/tuning_options.h"
#include "bench/tuning_rig.h"
#include "bench/update_rig.h"
#include "core/base/format.h"
#include "core/plan/profile.h"
#include "cuda/host_device.h"
#include "optim/optimizers.h"
#include "optim/tbb_workers.h"

namespace zoffload::bench {
namespace {

// Of the budgets; the rest is for the figures at the choice that the search made, and for what is
// measured before it.
constexpr double kSearchPart = 0.6;

// Of one measurement: where there is a budget of time, all that is no search takes a third of it.
double runtime_s(const Options& options) {
  if (options.budget_s == 0) return options.runtime_s;
  const double seconds = 90 + 30.0 * static_cast<double>(options.paths.size());
  return std::min(options.runtime_s, options.budget_s / seconds);
}

// Of one measurement of a path: so short that reads, writes and both fit into their part of the
// write budget, with half again for the warm-up and a drive that writes faster than it did.
double path_runtime_s(const Options& options, uint32_t repeats, double mixed_write_bytes_per_s) {
  if (options.max_write_bytes == 0) return runtime_s(options);
  const double bytes = static_cast<double>(options.max_write_bytes) * (1 - kSearchPart) /
                       static_cast<double>(options.paths.size());
  constexpr double kMargin = 1.5;
  constexpr double kLoads = 3;  // mixed writes once, writes alone twice as much
  const double seconds = bytes / (kMargin * kLoads * repeats * mixed_write_bytes_per_s);
  return std::min(runtime_s(options), seconds);
}

class ProfileCommand final : public Command {
 public:
  const char* name() const override { return "profile"; }
  const char* summary() const override {
    return "short runs of everything, as a file that the engine and the planner read";
  }
  const char* examples() const override {
    return "This machine and its drive; then \"zoffload\": {\"profile\": \"profile.json\"}.\n"
           "  zoffload-bench profile --path /mnt/nvme0\n"
           "Two drives, with little wear.\n"
           "  zoffload-bench profile --path /mnt/nvme0 /mnt/nvme1 --max-write 16GiB\n"
           "A file for each machine of a cluster.\n"
           "  zoffload-bench profile --path /scratch --profile-out /shared/$(hostname).json\n";
  }

  void add_options(CLI::App& app, Options& options) override;
  zoffload::Result<ExitCode> run(Context& context) override;
  NamedFiles files() const override { return {{}, {{"--profile-out", profile_file_}}}; }
  std::string print_table(const Document& document) const override;

 private:
  // Each adds to the profile and the document; false where it was cut short.
  zoffload::Result<bool> profile_path(const std::string& path, TuningRig::Budget budget,
                                      Profile& profile, Context& context);
  zoffload::Result<bool> profile_memory(Profile& profile, Context& context);
  zoffload::Result<bool> profile_updates(DType dtype, Profile& profile, Context& context);
  zoffload::Result<bool> profile_link(Profile& profile, Context& context);
  zoffload::Result<bool> profile_all(const std::vector<std::string>& paths, Profile& profile,
                                     Context& context);

  TuningOptions tuning_ = {.engines = {IoEngine::kAuto}};
  TuneSpace space_ = {.block_bytes = {512 << 10, 1 << 20, 2 << 20}};
  Stop stopped_ = Stop::kNone;  // by a path's share of a budget
  uint32_t repeats_ = 3;
  uint64_t numel_ = uint64_t{32} << 20;
  std::string profile_file_ = "profile.json";
};

void ProfileCommand::add_options(CLI::App& app, Options& options) {
  add_tuning_options(app, options, tuning_);
  add_count(app, "--max-depth", space_.depth_max, "most requests in flight").group("Search");
  add_count(app, "--repeats", repeats_, "measurements of each figure").group("Measuring");
  add_parsed(app, "--numel", numel_, parse_numel, "N", format_numel(numel_),
             "parameters of the update; 16 bytes of memory each")
      .group("Measuring");
  add_text(app, "--profile-out", profile_file_,
           "the profile; one that is there is replaced, any other file is not")
      .type_name("FILE")
      .group("Output")
      .default_text(profile_file_);
}

// Whether `file`, which can be written, may be: it is not there, or a profile of any version.
Status check_replaceable(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return Status();
  ZO_ASSIGN_OR_RETURN(const std::string text, read_text(file));
  const Json found = Json::parse(text, nullptr, false);
  const Json schema = found.is_object() ? found.value("schema", Json()) : Json();
  if (schema.is_string() && schema.get<std::string>().starts_with("zoffload-profile/")) {
    return Status();
  }
  return Status(Code::kInvalidArgument,
                "--profile-out " + file + ": is there and is no zoffload profile; it is kept");
}

// The whole file or none of it.
Status replace(const std::string& text, const std::string& file) {
  const std::string draft = file + "." + std::to_string(getpid()) + ".tmp";
  ZO_TRY(write_text(text, draft));
  if (std::rename(draft.c_str(), file.c_str()) == 0) return Status();
  const Status error = Status::from_errno(errno, file);
  std::remove(draft.c_str());
  return error;
}

// Reads, writes and both at the best candidate, in rounds whose order rotates.
zoffload::Result<bool> measure_path(const std::string& path, const Candidate& best,
                                    uint32_t repeats, TuningRig& rig, PathProfile& entry,
                                    Context& context) {
  const double seconds = path_runtime_s(context.options(), repeats, rig.write_bytes_per_s());
  struct Figure {
    const char* name;
    double read_share;
    double* bytes_per_s;
    bench::Result result;
  };
  Figure figures[] = {{"read", 1, &entry.read_bytes_per_s, {}},
                      {"write", 0, &entry.write_bytes_per_s, {}},
                      {"mixed", 0.5, &entry.mixed_bytes_per_s, {}}};
  for (uint32_t round = 0; round < repeats; ++round) {
    for (size_t turn = 0; turn < std::size(figures); ++turn) {
      Figure& figure = figures[(round + turn) % std::size(figures)];
      const uint64_t written_before = context.written_bytes();
      ZO_ASSIGN_OR_RETURN(const std::optional<StorageSample> sample,
                          rig.run(best, figure.read_share, seconds));
      if (!sample) return false;
      if (sample->bytes_per_s() <= 0) {
        return Status(Code::kTimeout, path +
                                          ": nothing moved in a measurement; give a longer "
                                          "--runtime");
      }
      add_sample(*sample, context.written_bytes() - written_before, figure.result);
    }
  }
  for (Figure& figure : figures) {
    *figure.bytes_per_s = figure.result.bandwidth.median();
    figure.result.name = figure.name;
    figure.result.params = {{"path", path},
                            {"engine", entry.io_engine},
                            {"workers", best.workers},
                            {"block_size_bytes", best.block_bytes},
                            {"queue_depth", best.depth},
                            {"read_share", figure.read_share}};
    context.document().results.push_back(std::move(figure.result));
  }
  return true;
}

zoffload::Result<bool> ProfileCommand::profile_path(const std::string& path,
                                                    TuningRig::Budget budget, Profile& profile,
                                                    Context& context) {
  constexpr double kReadShare = 0.5;  // as an update does
  TuningRig rig(path, space_, kReadShare, budget, context);
  const Measure measure = [&rig](const Candidate& candidate) { return rig.measure(candidate); };
  ZO_ASSIGN_OR_RETURN(const Tuned tuned, tune_path(space_, measure));
  stopped_ = rig.stopped();
  if (!tuned.complete) return false;
  PathProfile entry;
  entry.path = path;
  entry.io_engine = rig.engine_name(tuned.best);
  entry.block_bytes = tuned.best.block_bytes;
  entry.queue_depth = tuned.best.depth;
  ZO_ASSIGN_OR_RETURN(const bool complete,
                      measure_path(path, tuned.best, repeats_, rig, entry, context));
  stopped_ = rig.stopped();
  if (complete) profile.paths.push_back(std::move(entry));
  return complete;
}

zoffload::Result<bool> ProfileCommand::profile_memory(Profile& profile, Context& context) {
  constexpr uint64_t kBytes = uint64_t{256} << 20;
  TbbWorkers workers(core_count());
  context.progress().begin("memory", 0);
  bench::Result result;
  result.name = "memory.copy";
  result.params = {{"threads", workers.count()}, {"size_bytes", kBytes}};
  ZO_ASSIGN_OR_RETURN(result.bandwidth,
                      measure_memory_copy(kBytes, repeats_, workers, stopped_by(context)));
  context.progress().end();
  if (context.stop() != Stop::kNone) return false;
  for (double rate : result.bandwidth.values) {
    result.bytes += 2 * kBytes;
    result.seconds += 2.0 * kBytes / rate;
  }
  profile.memory_bytes_per_s = result.bandwidth.median();
  context.document().results.push_back(std::move(result));
  return true;
}

zoffload::Result<bool> ProfileCommand::profile_updates(DType dtype, Profile& profile,
                                                       Context& context) {
  ZO_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer, make_optimizer("adamw"));
  UpdateSetup setup;
  setup.numel = numel_;
  setup.dtype = dtype;
  ZO_ASSIGN_OR_RETURN(const auto rig, UpdateRig::open(setup));
  std::vector<uint32_t> threads = {1};
  if (core_count() > 1) threads.push_back(core_count());
  std::vector<std::unique_ptr<TbbWorkers>> workers;
  for (uint32_t count : threads) workers.push_back(std::make_unique<TbbWorkers>(count));
  std::vector<bench::Result> results(threads.size());
  std::vector<Samples> rates(threads.size());
  const auto measure = [&](size_t i, uint32_t) -> Status {
    double numel = 0;
    PassTime time;
    do {
      UpdatePass pass;
      ZO_ASSIGN_OR_RETURN(pass, rig->update(*optimizer, *workers[i], stopped_by(context)));
      numel += static_cast<double>(pass.numel);
      time.seconds += pass.time.seconds;
      time.cpu_seconds += pass.time.cpu_seconds;
    } while (time.seconds < runtime_s(context.options()) && context.stop() == Stop::kNone);
    const double bytes = numel * update_stream_bytes(dtype, StateFormat(), MomentSet());
    rates[i].values.push_back(numel / time.seconds);
    results[i].bandwidth.values.push_back(bytes / time.seconds);
    results[i].bytes += static_cast<uint64_t>(bytes);
    results[i].seconds += time.seconds;
    results[i].cpu_seconds += time.cpu_seconds;
    return Status();
  };
  const std::string phase = std::string("adamw ") + dtype_name(dtype);
  ZO_ASSIGN_OR_RETURN(const bool complete,
                      run_rounds(threads.size(), repeats_, context, phase, measure));
  if (!complete) return false;
  for (size_t i = 0; i < threads.size(); ++i) {
    results[i].name = "adam.fp32";
    results[i].params = {{"optimizer", "adamw"},
                         {"format", "fp32"},
                         {"dtype", dtype_name(dtype)},
                         {"numel", numel_},
                         {"threads", threads[i]}};
    results[i].details = {{"numel_per_s", rates[i].median()}};
    context.document().results.push_back(std::move(results[i]));
    profile.updates.push_back({"adamw", "fp32", dtype_name(dtype), threads[i], rates[i].median()});
  }
  return true;
}

zoffload::Result<bool> ProfileCommand::profile_link(Profile& profile, Context& context) {
  HostDevice device;
  constexpr LinkWay kWays[] = {LinkWay::kToDevice, LinkWay::kToHost, LinkWay::kBoth};
  double* const figures[] = {&profile.link.to_device_bytes_per_s, &profile.link.to_host_bytes_per_s,
                             &profile.link.both_bytes_per_s};
  bench::Result results[std::size(kWays)];
  const auto measure = [&](size_t i, uint32_t) -> Status {
    const auto sample = measure_link(device, kWays[i], runtime_s(context.options()));
    if (!sample.ok()) return sample.status();
    results[i].bytes += sample->bytes;
    results[i].seconds += sample->seconds;
    results[i].cpu_seconds += sample->cpu_seconds;
    results[i].bandwidth.values.push_back(sample->bytes_per_s());
    return Status();
  };
  ZO_ASSIGN_OR_RETURN(const bool complete,
                      run_rounds(std::size(kWays), repeats_, context, "link", measure));
  if (!complete) return false;
  for (size_t i = 0; i < std::size(kWays); ++i) {
    *figures[i] = results[i].bandwidth.median();
    results[i].name = std::string("link.") + link_way_name(kWays[i]);
    results[i].params = {{"device", device.name()}, {"memory", "pinned"}};
    context.document().results.push_back(std::move(results[i]));
  }
  return true;
}

// What is quick and certain comes first, so that it is not lost to a search that is cut short.
zoffload::Result<bool> ProfileCommand::profile_all(const std::vector<std::string>& paths,
                                                   Profile& profile, Context& context) {
  ZO_ASSIGN_OR_RETURN(bool complete, profile_memory(profile, context));
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    if (!complete) return false;
    ZO_ASSIGN_OR_RETURN(complete, profile_updates(dtype, profile, context));
  }
  if (!complete) return false;
  ZO_ASSIGN_OR_RETURN(complete, profile_link(profile, context));
  BudgetShares shares(context.options(), paths.size(), kSearchPart);
  for (const std::string& path : paths) {
    if (!complete) return false;
    ZO_ASSIGN_OR_RETURN(complete, profile_path(path, shares.next(context), profile, context));
  }
  return complete;
}

zoffload::Result<ExitCode> ProfileCommand::run(Context& context) {
  const Options& options = context.options();
  ZO_ASSIGN_OR_RETURN(const std::vector<std::string> paths, tuning_paths(options));
  ZO_ASSIGN_OR_RETURN(space_.engines, usable_engines(options.engines, context));
  ZO_TRY(check_replaceable(profile_file_));
  ZO_TRY(check_tuning(paths, space_, context));
  ZO_TRY(check_memory(UpdateRig::memory_bytes({.numel = numel_}), "--numel " + format_numel(numel_),
                      "give a smaller --numel"));
  if (options.dry_run) {
    plan_tuning(paths, context);
    context.plan("would write the profile to " + profile_file_);
    return ExitCode::kDone;
  }
  Profile profile;
  utsname machine = {};
  if (uname(&machine) == 0) profile.host = machine.nodename;
  profile.measured = context.document().started;
  ZO_ASSIGN_OR_RETURN(const bool complete, profile_all(paths, profile, context));
  if (!complete || context.stop() == Stop::kSignal) {
    const Stop stop = context.stop();
    context.warn("no profile was written");
    return context.end(stop != Stop::kNone ? stop : stopped_);
  }
  const std::string text = print_profile(profile);
  ZO_TRY(replace(text, profile_file_));
  std::error_code ignored;
  const std::string whole_name = std::filesystem::absolute(profile_file_, ignored).string();
  context.document().summary["profile"] = Json::parse(text);
  context.document().config = {{"zoffload", {{"profile", whole_name}}}};
  context.say("the profile is in " + profile_file_);
  return ExitCode::kDone;
}

std::string ProfileCommand::print_table(const Document& document) const {
  if (!document.summary.contains("profile")) return bench::print_table(document);
  const Profile profile = *parse_profile(document.summary["profile"].dump());
  std::string text;
  for (const PathProfile& path : profile.paths) {
    text += path.path + ": " + path.io_engine + ", " + format_exact(path.block_bytes) + " x " +
            std::to_string(path.queue_depth) + "\n  read   " + format_rate(path.read_bytes_per_s) +
            "\n  write  " + format_rate(path.write_bytes_per_s) + "\n  mixed  " +
            format_rate(path.mixed_bytes_per_s) + "\n";
  }
  for (const UpdateProfile& update : profile.updates) {
    text += update.optimizer + " of " + update.dtype + " with " + update.format + " state, " +
            std::to_string(update.threads) + " threads: " + format_numel_rate(update.numel_per_s) +
            "\n";
  }
  text += "link to the device: " + format_rate(profile.link.to_device_bytes_per_s) + ", back " +
          format_rate(profile.link.to_host_bytes_per_s) + ", both at once " +
          format_rate(profile.link.both_bytes_per_s) + "\n";
  return text + "memory, a copy on all cores: " + format_rate(profile.memory_bytes_per_s) + "\n";
}

}  // namespace

std::unique_ptr<Command> make_profile_command() { return std::make_unique<ProfileCommand>(); }

}  // namespace zoffload::bench
