// Time as an argument. The real clock is the steady clock; the simulated one jumps to the next
// event.
#pragma once

#include <cstdint>

namespace zoffload {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now_ns() const = 0;     // monotonic
  virtual void doze(uint64_t ns_max) = 0;  // gives up the CPU for at most this long
};

}  // namespace zoffload
