// Virtual time: a number, and the events that happen at later numbers. Dozing jumps to the next
// event, so a simulated hour takes as long as its events do, and a run repeats exactly.
// Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "core/ports/clock.h"

namespace zoffload {

class SimClock final : public Clock {
 public:
  SimClock() = default;
  SimClock(const SimClock&) = delete;
  SimClock& operator=(const SimClock&) = delete;

  uint64_t now_ns() const override { return now_ns_; }

  // Jumps to the next event, or by ns_max if that is sooner, and runs the events that are due by
  // then: also those that an event has added for this very moment.
  void doze(uint64_t ns_max) override;

  // Runs `event` at when_ns, from doze(). Events of one moment run in the order in which they were
  // added. `owner` is whom forget() asks for. REQUIRES: when_ns >= now_ns().
  void at(uint64_t when_ns, std::function<void()> event, const void* owner = nullptr);

  // Drops the owner's events: it is going away.
  void forget(const void* owner);

  bool idle() const { return events_.empty(); }
  std::optional<uint64_t> next_event_ns() const;

 private:
  struct Event {
    std::function<void()> run;
    const void* owner;
  };

  uint64_t now_ns_ = 0;
  std::multimap<uint64_t, Event> events_;  // by time; equal times in order of insertion
};

}  // namespace zoffload
