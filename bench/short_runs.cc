#include "bench/short_runs.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "bench/add_options.h"
#include "bench/progress.h"

namespace zoffload::bench {
namespace {

constexpr uint32_t kThreadsMax = 1024;

}  // namespace

void add_short_run_options(CLI::App& app, Options& options, ShortRuns& runs) {
  add_seconds(app, "--runtime", runs.runtime_s, "of one measurement").group("Measuring");
  add_count(app, "--repeats", runs.repeats, "measurements of each combination").group("Measuring");
  add_seconds(app, "--budget", options.budget_s, "of time for the whole command; exit 6 if reached")
      .group("Budget");
  add_flag(app, "--dry-run", options.dry_run, "say what would be done, and do nothing")
      .group("Budget");
}

zoffload::Result<bool> run_rounds(size_t candidate_count, uint32_t repeats, Context& context,
                                  const std::string& phase,
                                  const std::function<Status(size_t, uint32_t)>& measure) {
  const double all = static_cast<double>(candidate_count) * repeats;
  double done = 0;
  context.progress().begin(phase, 0);
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    for (size_t i = 0; i < candidate_count; ++i) {
      if (context.stop() != Stop::kNone) return false;
      ZO_TRY(measure((i + repeat) % candidate_count, repeat));
      context.progress().update(++done / all, 0, context.written_bytes());
    }
  }
  context.progress().end();
  return context.stop() == Stop::kNone;  // else the last one was cut short
}

ExitCode end_rounds(bool complete, Context& context) {
  return context.end(complete ? Stop::kNone : context.stop());
}

Stopped stopped_by(const Context& context) {
  return [&context] { return context.stop() != Stop::kNone; };
}

zoffload::Result<DType> parse_dtype(std::string_view text) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  return Status(Code::kInvalidArgument, "'" + std::string(text) + "' is neither bf16 nor fp32");
}

uint32_t core_count() { return std::max(1u, std::thread::hardware_concurrency()); }

Status check_threads(uint32_t threads) {
  if (threads <= kThreadsMax) return Status();
  return Status(Code::kInvalidArgument, "--threads is " + std::to_string(threads) + "; at most " +
                                            std::to_string(kThreadsMax));
}

std::string format_numel_rate(double numel_per_s) {
  char text[48];
  const bool many = numel_per_s >= 1e9;
  std::snprintf(text, sizeof text, "%.2f %s parameters/s", numel_per_s / (many ? 1e9 : 1e6),
                many ? "G" : "M");
  return text;
}

std::string format_share(double share) {
  char text[24];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

}  // namespace zoffload::bench
