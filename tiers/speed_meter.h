// What a path moves while it has enough to do, in windows of a fixed number of bytes: the time in
// which it waits for work is not its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace zoffload {

struct SpeedWindow {
  uint64_t bytes = 0;
  uint64_t ns = 0;
  double bytes_per_s() const { return static_cast<double>(bytes) * 1e9 / static_cast<double>(ns); }
};

class SpeedMeter {
 public:
  explicit SpeedMeter(uint64_t window_bytes) : window_bytes_(window_bytes) {}

  // To be called after each poll of the path: the total moved so far, and whether the path is busy
  // from now until the next call. A value is a window that is full.
  std::optional<SpeedWindow> advance(uint64_t now_ns, uint64_t moved_bytes, bool busy) {
    const uint64_t bytes = moved_bytes - moved_bytes_;
    if (skip_bytes_ > 0) {
      skip_bytes_ -= std::min(skip_bytes_, bytes);
    } else if (busy_) {
      window_.bytes += bytes;
      window_.ns += now_ns - now_ns_;
    }
    now_ns_ = now_ns;
    moved_bytes_ = moved_bytes;
    busy_ = busy;
    if (window_.bytes < window_bytes_ || window_.ns == 0) return std::nullopt;
    const SpeedWindow full = window_;
    window_ = {};
    return full;
  }

  // Begins a new window after this many bytes: what is measured changes now, and these are of
  // before.
  void restart(uint64_t skip_bytes) {
    window_ = {};
    skip_bytes_ = skip_bytes;
  }

 private:
  const uint64_t window_bytes_;
  SpeedWindow window_;
  bool busy_ = false;
  uint64_t now_ns_ = 0;
  uint64_t moved_bytes_ = 0;
  uint64_t skip_bytes_ = 0;
};

}  // namespace zoffload
