#include "core/sim/sim_clock.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/check.h"

namespace zoffload {

void SimClock::doze(uint64_t ns_max) {
  const uint64_t room_ns = std::numeric_limits<uint64_t>::max() - now_ns_;
  const uint64_t limit_ns = now_ns_ + std::min(ns_max, room_ns);
  now_ns_ = std::min(limit_ns, next_event_ns().value_or(limit_ns));
  while (!events_.empty() && events_.begin()->first <= now_ns_) {
    auto due = events_.extract(events_.begin());  // first, since the event may add or forget others
    due.mapped().run();
  }
}

void SimClock::at(uint64_t when_ns, std::function<void()> event, const void* owner) {
  ZO_CHECK(when_ns >= now_ns_);
  events_.emplace(when_ns, Event{std::move(event), owner});
}

void SimClock::forget(const void* owner) {
  ZO_CHECK(owner != nullptr);
  std::erase_if(events_, [owner](const auto& entry) { return entry.second.owner == owner; });
}

std::optional<uint64_t> SimClock::next_event_ns() const {
  if (events_.empty()) return std::nullopt;
  return events_.begin()->first;
}

}  // namespace zoffload
