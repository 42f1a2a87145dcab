#include "bench/context.h"

#include <algorithm>
#include <csignal>

#include "bench/interrupt.h"
#include "bench/progress.h"

namespace zoffload::bench {

ExitCode exit_code_of(Stop stop) {
  switch (stop) {
    case Stop::kNone: return ExitCode::kDone;
    case Stop::kSignal:
      return caught_signal() == SIGTERM ? ExitCode::kTerminated : ExitCode::kInterrupted;
    case Stop::kTimeBudget:
    case Stop::kWriteBudget: return ExitCode::kPartial;
  }
  return ExitCode::kDone;
}

Context::Context(const Options& options, Document& document, Progress& progress)
    : options_(options),
      document_(document),
      progress_(progress),
      started_(std::chrono::steady_clock::now()) {}

Stop Context::stop() const {
  if (caught_signal() != 0) return Stop::kSignal;
  if (refused_.load(std::memory_order_relaxed)) return Stop::kWriteBudget;
  if (options_.budget_s > 0) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - started_;
    if (passed.count() >= options_.budget_s) return Stop::kTimeBudget;
  }
  return Stop::kNone;
}

uint64_t Context::may_write(uint64_t bytes, uint64_t unit) {
  const uint64_t wanted = bytes / unit * unit;
  if (options_.max_write_bytes == 0) {
    written_bytes_ += wanted;
    return wanted;
  }
  uint64_t written = written_bytes_.load();
  uint64_t granted;
  do {
    const uint64_t left = options_.max_write_bytes - std::min(written, options_.max_write_bytes);
    granted = std::min(wanted, left / unit * unit);
  } while (!written_bytes_.compare_exchange_weak(written, written + granted));
  if (granted < wanted) refused_.store(true, std::memory_order_relaxed);
  return granted;
}

void Context::warn(const std::string& sentence) {
  const std::lock_guard<std::mutex> lock(warnings_);
  Json& warnings = document_.summary["warnings"];
  if (std::find(warnings.begin(), warnings.end(), sentence) != warnings.end()) return;
  warnings.push_back(sentence);
  progress_.print("warning: " + sentence);
}

void Context::plan(const std::string& line) {
  if (!options_.dry_run) return say(line);
  document_.summary["plan"].push_back(line);
}

ExitCode Context::end(Stop stop) {
  if (stop == Stop::kSignal) warn("cut short by a signal");
  const char* const larger = ": a larger one would finish it";
  if (stop == Stop::kTimeBudget) warn(std::string("cut short by --budget") + larger);
  if (stop == Stop::kWriteBudget) warn(std::string("cut short by --max-write") + larger);
  return exit_code_of(stop);
}

void Context::say(const std::string& sentence) {
  if (!options_.quiet) progress_.print(sentence);
}

}  // namespace zoffload::bench
