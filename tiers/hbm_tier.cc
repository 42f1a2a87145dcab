#include "tiers/hbm_tier.h"

#include "core/base/check.h"

namespace zoffload {

HbmTier::HbmTier(Device& device, DeviceSpan arena)
    : Tier(TierKind::kHbm, arena.bytes()), device_(device), arena_(arena) {
  ZO_CHECK(arena.address() % kPageBytes == 0);
}

void HbmTier::do_load(Extent from, HostSpan to, Urgency, Completion& completion) {
  device_.copy_to_host(device_bytes(from), to.first(from.bytes), completion);
}

void HbmTier::do_store(HostSpan from, Extent to, Completion& completion) {
  device_.copy_to_device(from.first(to.bytes), device_bytes(to), completion);
}

}  // namespace zoffload
