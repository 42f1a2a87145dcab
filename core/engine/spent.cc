#include "core/engine/spent.h"

#include <cstddef>
#include <numeric>

#include "core/base/check.h"

namespace zoffload {

const char* cause_name(Cause cause) {
  switch (cause) {
    case Cause::kDisk: return "disk";
    case Cause::kLink: return "link";
    case Cause::kCpu: return "cpu";
    case Cause::kTurn: return "turn";
    case Cause::kSlot: return "slot";
    case Cause::kUser: return "user";
    case Cause::kEngine: return "engine";
  }
  return "unknown";
}

namespace {

template <typename Apply>
void for_each_counter(Spent& a, const Spent& b, Apply apply) {
  ZO_CHECK(a.resources.size() == b.resources.size());
  apply(a.wall_ns, b.wall_ns);
  apply(a.step_ns, b.step_ns);
  apply(a.worker_ns, b.worker_ns);
  for (size_t i = 0; i < kCauseCount; ++i) apply(a.stall_ns[i], b.stall_ns[i]);
  for (size_t role = 0; role < kRoleCount; ++role) {
    for (size_t tier = 0; tier < kTierCount; ++tier) {
      apply(a.loaded_bytes[tier][role], b.loaded_bytes[tier][role]);
      apply(a.stored_bytes[tier][role], b.stored_bytes[tier][role]);
    }
    apply(a.to_device_bytes[role], b.to_device_bytes[role]);
    apply(a.to_host_bytes[role], b.to_host_bytes[role]);
    apply(a.on_device_bytes[role], b.on_device_bytes[role]);
  }
  for (size_t i = 0; i < a.resources.size(); ++i) {
    apply(a.resources[i].busy_ns, b.resources[i].busy_ns);
    apply(a.resources[i].bytes, b.resources[i].bytes);
  }
}

}  // namespace

uint64_t Spent::stalled_ns() const {
  return std::accumulate(stall_ns.begin(), stall_ns.end(), uint64_t{0});
}

Spent& Spent::operator+=(const Spent& other) {
  if (resources.empty()) resources.resize(other.resources.size());
  for_each_counter(*this, other, [](uint64_t& a, uint64_t b) { a += b; });
  return *this;
}

Spent& Spent::operator-=(const Spent& other) {
  for_each_counter(*this, other, [](uint64_t& a, uint64_t b) {
    ZO_CHECK(a >= b);
    a -= b;
  });
  return *this;
}

}  // namespace zoffload
