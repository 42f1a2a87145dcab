#include "bench/progress.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "core/base/format.h"

namespace zoffload::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTerminalPeriodS = 0.2;
constexpr double kLogPeriodS = 10;
constexpr const char* kClearLine = "\r\033[K";

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

struct Progress::State {
  explicit State(Style wanted) : style(wanted) {}

  const Style style;
  std::mutex mutex;  // guards all below and the order of lines
  std::string phase;
  double expected_s = 0;
  Clock::time_point begun;
  Clock::time_point drawn;
  uint64_t drawn_bytes = 0;  // moved when the line was drawn last
  bool line_shown = false;

  void clear() {
    if (line_shown) std::fputs(kClearLine, stderr);
    line_shown = false;
  }

  std::string describe(double share, uint64_t moved, uint64_t written,
                       Clock::time_point now) const {
    const double passed_s = seconds_between(begun, now);
    if (share < 0) share = expected_s > 0 ? passed_s / expected_s : -1;
    std::string line = phase;
    if (share >= 0) {
      share = std::min(share, 1.0);
      line += "  " + std::to_string(static_cast<int>(share * 100)) + " %";
      const double left_s = expected_s > 0 ? std::max(expected_s - passed_s, 0.0)
                            : share > 0    ? passed_s * (1 - share) / share
                                           : 0;
      if (left_s > 0) line += "  " + format_seconds(left_s) + " left";
    }
    const double period_s = seconds_between(drawn, now);
    const uint64_t more = moved - std::min(moved, drawn_bytes);
    if (more > 0 && period_s > 0) {
      const auto rate = static_cast<uint64_t>(static_cast<double>(more) / period_s);
      line += "  " + format_bytes(rate) + "/s";
    }
    if (written > 0) line += "  written " + format_bytes(written);
    return line;
  }
};

Progress::Progress(Style style) : state_(new State(style)) {}

Progress::~Progress() { end(); }

void Progress::begin(const std::string& phase, double seconds) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->phase = phase;
  state_->expected_s = seconds;
  state_->begun = Clock::now();
  state_->drawn = state_->begun;
  state_->drawn_bytes = 0;
}

void Progress::update(double share, uint64_t moved_bytes, uint64_t written_bytes) {
  if (state_->style == Style::kNone) return;
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const bool terminal = state_->style == Style::kTerminal;
  const Clock::time_point now = Clock::now();
  const double period_s = terminal ? kTerminalPeriodS : kLogPeriodS;
  if (seconds_between(state_->drawn, now) < period_s) return;
  const std::string line = state_->describe(share, moved_bytes, written_bytes, now);
  std::fprintf(stderr, terminal ? "%s%s" : "%.0s%s\n", kClearLine, line.c_str());
  state_->line_shown = terminal;
  state_->drawn = now;
  state_->drawn_bytes = moved_bytes;
}

void Progress::end() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->clear();
}

void Progress::print(const std::string& line) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace zoffload::bench
