// zoffload-bench pipeline: the engine's real update pass, and what it was bound by.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string_view>

#include "bench/add_options.h"
#include "bench/commands.h"
#include "bench/memory_bound.h"
#include "bench/output.h"
#include "bench/pipeline_run.h"
#include "bench/pipeline_text.h"
#include "bench/short_runs.h"
#include "bench/update_rig.h"
#include "core/base/format.h"
#include "core/plan/profile.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kBlockBytesMax = uint64_t{64} << 20;
constexpr uint64_t kSubgroupBytesMax = uint64_t{1} << 30;
constexpr double kConsumerTbw = 600;     // TB: a consumer drive of 1 TB
constexpr double kDatacentreTbw = 7008;  // TB: 3.84 TB, one drive write a day for five years

zoffload::Result<std::vector<bool>> parse_checksums(std::string_view text) {
  if (text == "on") return std::vector<bool>{true};
  if (text == "off") return std::vector<bool>{false};
  if (text == "both") return std::vector<bool>{true, false};
  return Status(Code::kInvalidArgument, "'" + std::string(text) + "' is none of on, off, both");
}

zoffload::Result<IoEngine> parse_engine(std::string_view text) {
  if (const auto engine = io_engine_named(std::string(text))) return *engine;
  return Status(Code::kInvalidArgument,
                "'" + std::string(text) + "' is none of auto, uring, libaio, threads");
}

class PipelineCommand final : public Command {
 public:
  const char* name() const override { return "pipeline"; }
  const char* summary() const override {
    return "the real update pass: step time, what bounds it, and how near it comes";
  }
  const char* examples() const override {
    return "A step of 64Mi parameters with their state on a drive.\n"
           "  zoffload-bench pipeline --path /mnt/nvme\n"
           "GPT-2's shapes, 60 % of the state on two drives, within 2 GiB of memory.\n"
           "  zoffload-bench pipeline --model gpt2.json --optimizer-tier nvme:0.6,host:0.4 \\\n"
           "      --path /mnt/a --path /mnt/b --host-bytes 2GiB\n"
           "What checksums cost, and no more than 50 GiB written.\n"
           "  zoffload-bench pipeline --path /mnt/nvme --checksums both --max-write 50GiB\n"
           "\n"
           "Ctrl-C ends it after the step that runs. Nothing is left behind; only kill -9 leaves\n"
           "a folder zoffload-..., which zoffload-bench clean removes.\n";
  }

  void add_options(CLI::App& app, Options& options) override;
  zoffload::Result<ExitCode> run(Context& context) override;
  std::string print_table(const Document& document) const override;
  NamedFiles files() const override { return {{model_file_, profile_file_}, {}}; }

 private:
  Status check_values(const Options& options) const;
  Status check_compare(const Options& options) const;
  zoffload::Result<PipelineSetup> make_setup(const Context& context) const;
  void report(const PipelineRun& run, const PipelineSetup& setup, bool complete,
              Document& document) const;

  uint64_t numel_ = uint64_t{64} << 20;
  std::string model_file_;
  std::string profile_file_;
  Placement placement_{0, 0, 1};
  DType dtype_ = DType::kBFloat16;
  StateFormat format_ = {};
  uint64_t host_bytes_ = 0;
  uint64_t subgroup_bytes_ = PlanRequest{}.subgroup_bytes;
  uint32_t threads_ = core_count();
  IoEngine engine_ = IoEngine::kAuto;
  uint64_t block_bytes_ = uint64_t{1} << 20;
  uint32_t queue_depth_ = 32;
  std::vector<bool> checksums_ = {true};
  uint32_t warmup_steps_ = 2;
  uint32_t steps_ = 3;
  uint32_t rounds_ = 3;
  double bound_s_ = 2;
  PeerOptions compare_;
};

void PipelineCommand::add_options(CLI::App& app, Options& options) {
  const std::string model = "Model";
  add_parsed(app, "--numel", numel_, parse_numel, "N", format_numel(numel_),
             "parameters, such as 64Mi, 350M or 7B")
      .group(model);
  add_text(app, "--model", model_file_,
           "JSON: {\"params\": [[\"name\", [2, 3]], ...]} or {\"layers\": 12, \"width\": "
           "768, \"vocabulary\": 50257}")
      .excludes("--numel")
      .type_name("FILE")
      .group(model);
  add_parsed(app, "--dtype", dtype_, parse_dtype, "bf16|fp32", dtype_name(dtype_),
             "of weights and gradients")
      .group(model);
  add_parsed(app, "--format", format_, state_format_named,
             "fp32|split|bf16|int8|split+bf16|split+int8", "fp32", "of the optimizer's state")
      .group(model);
  const std::string group = "Engine";
  add_path_option(app, options);
  add_parsed(app, "--optimizer-tier", placement_, parse_placement, "nvme|host|hbm|SHARES",
             format_placement(placement_), "home of the state, or shares: nvme:0.6,host:0.4")
      .group(group);
  add_text(app, "--profile", profile_file_, "from zoffload-bench profile: shares of the paths")
      .type_name("FILE")
      .group(group);
  add_size(app, "--host-bytes", host_bytes_, "hard budget of the engine's pinned memory")
      .group(group);
  add_size(app, "--subgroup-bytes", subgroup_bytes_, "most optimizer state in one update")
      .group(group);
  add_count(app, "--threads", threads_, "CPU workers").group(group);
  add_parsed(app, "--engine", engine_, parse_engine, "auto|uring|libaio|threads",
             io_engine_name(engine_), "how requests reach the kernel")
      .group(group);
  add_size(app, "--block-size", block_bytes_, "bytes of one request").group(group);
  add_count(app, "--queue-depth", queue_depth_, "requests in flight, per path").group(group);
  add_parsed(app, "--checksums", checksums_, parse_checksums, "on|off|both", "on",
             "of what is stored, compared at load; both takes turns")
      .group(group);
  add_flag(
      app, "--no-verify-reads", [this]() { checksums_ = {false}; }, "short for --checksums off")
      .excludes("--checksums")
      .group(group);
  add_flag(app, "--force", options.force, "use a path that is memory (tmpfs), not a drive")
      .group(group);
  add_count(app, "--steps", steps_, "in each round").group("Measuring");
  add_count(app, "--warmup-steps", warmup_steps_, "before, not counted").group("Measuring");
  add_count(app, "--repeats", rounds_, "rounds of steps, each followed by the bounds")
      .group("Measuring");
  add_seconds(app, "--bound-runtime", bound_s_, "longest measurement of a bound in a round")
      .group("Measuring");
  add_budget_options(app, options);
  add_peer_options(app, compare_);
}

// What DeepSpeed's optimizer on NVMe can be asked to do too.
Status PipelineCommand::check_compare(const Options& options) const {
  const bool same = compare_.libraries == std::vector<std::string>{"deepspeed"} &&
                    placement_.nvme == 1 && options.paths.size() == 1 && model_file_.empty() &&
                    dtype_ == DType::kBFloat16;
  if (same) return Status();
  return Status(Code::kInvalidArgument,
                "--compare is of deepspeed, and of a model of --numel bf16 parameters with all "
                "state on one --path");
}

Status PipelineCommand::check_values(const Options& options) const {
  const auto wrong = [](const std::string& text) { return Status(Code::kInvalidArgument, text); };
  if (placement_.nvme > 0 && options.paths.empty()) {
    return wrong("--path is missing: a folder on the drive that is to hold the state");
  }
  if (block_bytes_ % kPageBytes != 0 || block_bytes_ > kBlockBytesMax) {
    return wrong("--block-size must be a multiple of 4KiB, at most 64MiB");
  }
  if (queue_depth_ > kQueueDepthMax) return wrong("--queue-depth is above 4096");
  if (!compare_.libraries.empty()) ZO_TRY(check_compare(options));
  if (subgroup_bytes_ > kSubgroupBytesMax) return wrong("--subgroup-bytes is above 1GiB");
  return check_threads(threads_);
}

// Whether the engine will be able to read it: that is opened long after the plan is said.
Status check_profile(const std::string& file) {
  const zoffload::Result<std::string> text = read_text(file);
  if (!text.ok()) return text.status().within("--profile");
  return parse_profile(*text).status().within("--profile: " + file);
}

zoffload::Result<PipelineSetup> PipelineCommand::make_setup(const Context& context) const {
  PipelineSetup setup;
  ZO_TRY(check_values(context.options()));
  if (!profile_file_.empty()) ZO_TRY(check_profile(profile_file_));
  if (model_file_.empty()) {
    // Before there is a list of them: weights and gradients alone.
    ZO_TRY(check_memory(2 * numel_ * dtype_bytes(dtype_), "--numel " + format_numel(numel_),
                        "give a smaller --numel"));
    setup.shape = model_of(numel_);
  } else {
    ZO_ASSIGN_OR_RETURN(setup.shape, read_model(model_file_));
    ZO_TRY(check_memory(UserModel::memory_bytes(setup.shape, dtype_), "--model " + model_file_,
                        "give a smaller one"));
  }
  setup.dtype = dtype_;
  setup.format = format_;
  setup.request.plan.params.host = 1;  // in place: nothing is placed there
  setup.request.plan.optimizer = placement_;
  setup.request.plan.host_bytes = host_bytes_;
  setup.request.plan.subgroup_bytes = subgroup_bytes_;
  setup.request.threads = threads_;
  if (placement_.nvme > 0) setup.request.nvme_paths = context.options().paths;
  setup.request.io_engine = io_engine_name(engine_);
  setup.request.io_block_bytes = block_bytes_;
  setup.request.io_queue_depth = queue_depth_;
  setup.request.profile_file = profile_file_;
  setup.request.allow_memory_paths = context.options().force;
  setup.request.measure_paths = false;  // it would write more than was planned
  setup.engine = engine_;
  setup.checksums = checksums_;
  setup.warmup_steps = warmup_steps_;
  setup.steps = steps_;
  setup.rounds = rounds_;
  setup.bound_s = bound_s_;
  setup.compare = compare_;
  return setup;
}

// The core logs to spdlog's default logger, which would be stdout.
void log_to_stderr(bool quiet) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("zoffload-bench", std::move(sink));
  logger->set_pattern("%v");
  logger->set_level(quiet ? spdlog::level::warn : spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

zoffload::Result<ExitCode> PipelineCommand::run(Context& context) {
  log_to_stderr(context.options().quiet);
  ZO_ASSIGN_OR_RETURN(const PipelineSetup setup, make_setup(context));
  ZO_ASSIGN_OR_RETURN(const auto run, PipelineRun::plan(setup, context));
  if (run->cost().step_bytes > 0) {
    context.document().summary["planned_write_bytes"] = run->planned_write_bytes();
    context.plan("will write " + format_bytes(run->planned_write_bytes()) + ", " +
                 format_bytes(run->cost().step_bytes) +
                 " of it in each step, and a mixed load of at most " + format_seconds(bound_s_) +
                 " in each round");
  }
  if (context.options().dry_run) {
    if (run->cost().step_bytes == 0) context.plan("will write nothing");
    return ExitCode::kDone;
  }
  const auto complete = run->run();
  report(*run, setup, complete.ok() && *complete, context.document());
  if (!complete.ok()) return complete.status();
  return end_rounds(*complete, context);
}

bench::Result bound_result(const Bound& bound, const PipelineSetup& setup) {
  const OpenRequest& request = setup.request;
  bench::Result result;
  result.name = std::string("bound.") + bound.name;
  result.bytes = bound.bytes;
  result.seconds = bound.seconds;
  result.bandwidth = bound.rate;
  result.cpu_seconds = bound.cpu_seconds;
  result.written_bytes = bound.written_bytes;
  result.details["step_seconds"] = bound.step_seconds;
  if (result.name == "bound.disk") {
    result.params = {{"rw", "mixed:50"},
                     {"path", request.nvme_paths},
                     {"block_size_bytes", request.io_block_bytes},
                     {"queue_depth", request.io_queue_depth}};
  } else if (result.name == "bound.cpu") {
    result.params = {{"dtype", dtype_name(setup.dtype)}, {"threads", request.threads}};
    result.details["numel_per_s"] = bound.rate.median();
    const double bytes = update_stream_bytes(setup.dtype, setup.format, MomentSet());
    for (double& rate : result.bandwidth.values) rate *= bytes;  // of memory traffic
  } else {
    result.params = {{"way", "both"}};
  }
  return result;
}

Json to_json(const StepSample& step, uint64_t numel) {
  constexpr auto kNvme = static_cast<size_t>(TierKind::kNvme);
  const auto all = static_cast<double>(numel);
  return {{"nvme_read_bytes_per_parameter", static_cast<double>(step.loaded_bytes[kNvme]) / all},
          {"nvme_written_bytes_per_parameter", static_cast<double>(step.stored_bytes[kNvme]) / all},
          {"nvme_read_bytes_per_step", step.loaded_bytes[kNvme]},
          {"nvme_written_bytes_per_step", step.stored_bytes[kNvme]}};
}

// How many steps until a drive has been written full so often as its maker promises.
uint64_t steps_to_tbw(double tbw, uint64_t step_bytes, size_t drives) {
  const double each = static_cast<double>(step_bytes) / static_cast<double>(drives);
  return static_cast<uint64_t>(tbw * 1e12 / each);
}

bench::Result step_result(const PipelineFigures& figures, const PipelineRun& run,
                          const PipelineSetup& setup) {
  const OpenRequest& request = setup.request;
  const StepSample& step = figures.last;
  const size_t nvme = static_cast<size_t>(TierKind::kNvme);
  const uint64_t nvme_bytes = step.loaded_bytes[nvme] + step.stored_bytes[nvme];
  const auto memory_bytes =
      static_cast<uint64_t>(static_cast<double>(run.numel()) *
                            update_stream_bytes(setup.dtype, setup.format, MomentSet()));
  const uint64_t bytes = nvme_bytes > 0 ? nvme_bytes : memory_bytes;
  bench::Result result;
  result.name = "pipeline";
  result.params = {{"numel", run.numel()},
                   {"dtype", dtype_name(setup.dtype)},
                   {"format", state_format_name(setup.format)},
                   {"optimizer_tier", format_placement(request.plan.optimizer)},
                   {"path", request.nvme_paths},
                   {"host_limit_bytes", request.plan.host_bytes},
                   {"threads", request.threads},
                   {"engine", request.io_engine},
                   {"block_size_bytes", request.io_block_bytes},
                   {"queue_depth", request.io_queue_depth},
                   {"checksums", figures.checksums ? "on" : "off"}};
  for (const double seconds : figures.seconds_per_step.values) {
    result.seconds += seconds;
    result.bandwidth.values.push_back(static_cast<double>(bytes) / seconds);
  }
  result.bytes = bytes * figures.seconds_per_step.values.size();
  result.cpu_seconds = figures.cpu_seconds;
  result.written_bytes = figures.written_bytes;

  const double step_s = figures.seconds_per_step.median();
  result.details = {{"bytes_are", nvme_bytes > 0 ? "nvme" : "memory"},
                    {"seconds_per_step", figures.seconds_per_step.to_json()},
                    {"parameters_per_s", static_cast<double>(run.numel()) / step_s},
                    {"subgroup_count", run.cost().plan.layout.subgroups.size()},
                    {"pinned_bytes", run.cost().plan.arena_bytes()}};
  result.details.update(to_json(step, run.numel()));
  double predicted_s = 0;
  const char* bound_by = "";
  bool has_disk = nvme_bytes == 0;
  for (const Bound& bound : run.bounds()) {
    result.details[std::string(bound.name) + "_bound_seconds"] = bound.step_seconds;
    has_disk = has_disk || std::string_view(bound.name) == "disk";
    if (bound.step_seconds <= predicted_s) continue;
    predicted_s = bound.step_seconds;
    bound_by = bound.name;
  }
  // Of what was measured the slowest bounds the step only if nothing is missing.
  if (predicted_s > 0 && has_disk) {
    result.details["bound_by"] = bound_by;
    result.details["predicted_step_seconds"] = predicted_s;
    result.details["share_of_bound"] = predicted_s / step_s;
  }
  if (const uint64_t written = step.stored_bytes[nvme]; written > 0) {
    const size_t drives = request.nvme_paths.size();
    result.details["steps_to_600_tbw"] = steps_to_tbw(kConsumerTbw, written, drives);
    result.details["steps_to_7008_tbw"] = steps_to_tbw(kDatacentreTbw, written, drives);
  }
  return result;
}

void report_peers(const PipelineRun& run, const PipelineSetup& setup, bool complete,
                  Document& document) {
  const std::string format(state_format_name(setup.format));
  for (const PipelineFigures& figures : run.figures()) {
    Samples rates;
    for (const double seconds : figures.seconds_by_round.values) {
      rates.values.push_back(static_cast<double>(run.numel()) / seconds);
    }
    const Json ours = {{"format", format},
                       {"dtype", dtype_name(setup.dtype)},
                       {"checksums", figures.checksums ? "on" : "off"}};
    run.peers()->compare(rates, ours, false, document);
  }
  run.peers()->take_results({{"beside", format + " " + dtype_name(setup.dtype)}}, complete,
                            document);
}

void PipelineCommand::report(const PipelineRun& run, const PipelineSetup& setup, bool complete,
                             Document& document) const {
  Json& summary = document.summary;
  for (const PipelineFigures& figures : run.figures()) {
    if (figures.seconds_per_step.empty()) continue;
    bench::Result result = step_result(figures, run, setup);
    result.interrupted = !complete;
    if (!summary.contains("seconds_per_step")) {
      summary["seconds_per_step"] = figures.seconds_per_step.median();
      for (const char* key : {"parameters_per_s", "predicted_step_seconds", "bound_by",
                              "share_of_bound", "steps_to_600_tbw", "steps_to_7008_tbw"}) {
        if (result.details.contains(key)) summary[key] = result.details[key];
      }
    }
    document.results.push_back(std::move(result));
  }
  for (const Bound& bound : run.bounds()) document.results.push_back(bound_result(bound, setup));
  if (run.peers() != nullptr) report_peers(run, setup, complete, document);
  if (run.figures().size() != 2) return;
  const Samples& on = run.figures()[0].seconds_by_round;
  const Samples& off = run.figures()[1].seconds_by_round;
  Samples ratios;  // round by round
  for (size_t i = 0; i < std::min(on.values.size(), off.values.size()); ++i) {
    ratios.values.push_back(off.values[i] / on.values[i]);
  }
  if (!ratios.empty()) summary["checksums_on_off_ratio"] = ratios.median();  // of the speeds
}

std::string PipelineCommand::print_table(const Document& document) const {
  std::string table;
  for (const bench::Result& result : document.results) {
    if (result.name == "pipeline") table += pipeline_text(result, document.results);
  }
  if (document.summary.contains("checksums_on_off_ratio")) {
    table += "speed with checksums: " + format_share(document.summary["checksums_on_off_ratio"]) +
             " of that without\n";
  }
  return table + ratios_table(document);
}

}  // namespace

std::unique_ptr<Command> make_pipeline_command() { return std::make_unique<PipelineCommand>(); }

}  // namespace zoffload::bench
