// One subgroup's roles as memory the CPU can work on. Homes that the CPU can address are used where
// they lie; the others get a part of one update slot, and are loaded and stored around the work.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "core/engine/swap_manager.h"

namespace zoffload {

class UpdateBuffer {
 public:
  UpdateBuffer(SwapManager& swap, SubgroupId subgroup) : swap_(swap), subgroup_(subgroup) {
    for (Role role : kStored) {
      const Home& home = swap.home(subgroup, role);
      bytes_[index(role)] = home.host_bytes();
      travels_[index(role)] = home.exists() && bytes(role).empty();
    }
  }

  bool needs_slot() const {
    for (Role role : kStored) {
      if (travels(role)) return true;
    }
    return false;
  }

  // Lays the roles that travel over the slot, page by page.
  void use(SlotPool::Slot slot) {
    slot_ = std::move(slot);
    HostSpan rest = swap_.update_bytes(slot_);
    for (Role role : kStored) {
      if (!travels(role)) continue;
      const uint64_t padded = round_up(swap_.home(subgroup_, role).extent.bytes, kPageBytes);
      bytes_[index(role)] = rest.first(padded);
      rest = rest.subspan(padded);
    }
  }

  // The role's bytes, possibly padded at the end; empty where the bucket does not keep it here.
  HostSpan bytes(Role role) const { return bytes_[index(role)]; }
  bool travels(Role role) const { return travels_[index(role)]; }

  void load(Role role, Urgency urgency, OperationSet& reads) {
    if (travels(role)) swap_.load(subgroup_, role, bytes(role), urgency, reads.add());
  }
  void store(Role role, OperationSet& writes) {
    if (travels(role)) swap_.store(bytes(role), subgroup_, role, writes.add());
  }

 private:
  static constexpr Role kStored[] = {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq};
  static constexpr size_t index(Role role) { return static_cast<size_t>(role); }

  SwapManager& swap_;
  const SubgroupId subgroup_;
  SlotPool::Slot slot_;
  std::array<HostSpan, kRoleCount> bytes_{};
  std::array<bool, kRoleCount> travels_{};
};

}  // namespace zoffload
