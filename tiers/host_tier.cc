#include "tiers/host_tier.h"

#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace zoffload {

HostTier::HostTier(HostSpan arena) : Tier(TierKind::kHost, arena.size()), arena_(arena) {
  ZO_CHECK(reinterpret_cast<uintptr_t>(arena.data()) % kPageBytes == 0);
}

HostTier::~HostTier() { ZO_CHECK(in_flight_.empty()); }

HostSpan HostTier::host_bytes(Extent extent) {
  ZO_CHECK(extent.offset <= used_bytes());
  ZO_CHECK(extent.bytes <= used_bytes() - extent.offset);
  return arena_.subspan(extent.offset, extent.bytes);
}

void HostTier::do_load(Extent from, HostSpan to, Urgency, Completion& completion) {
  start(host_bytes(from), to.first(from.bytes), completion);
}

void HostTier::do_store(HostSpan from, Extent to, Completion& completion) {
  start(from.first(to.bytes), host_bytes(to), completion);
}

void HostTier::start(HostSpan from, HostSpan to, Completion& completion) {
  completion.start();
  in_flight_.push_back({from, to, &completion});
}

uint32_t HostTier::poll() {
  const std::vector<Copy> running = std::exchange(in_flight_, {});
  for (const Copy& copy : running) {
    std::memcpy(copy.to.data(), copy.from.data(), copy.from.size());
    copy.completion->finish(Status(), copy.from.size());
  }
  return static_cast<uint32_t>(running.size());
}

}  // namespace zoffload
