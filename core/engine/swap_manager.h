// The homes of every shard and the slots through which they travel. It knows where each subgroup's
// roles live, lends the memory on the way, and knows which homes are settled: nobody is writing
// them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/attribution.h"
#include "core/engine/failure.h"
#include "core/engine/operation.h"
#include "core/engine/slot_pool.h"
#include "core/plan/plan.h"
#include "core/ports/tier.h"

namespace zoffload {

using Tiers = std::array<Tier*, kTierCount>;  // by TierKind; null where the plan puts nothing there

// Where one role of one subgroup lives. No tier: the bucket does not keep the role, or the user
// keeps it in place.
struct Home {
  Tier* tier = nullptr;
  Extent extent;

  bool exists() const { return tier != nullptr; }
  HostSpan host_bytes() const { return exists() ? tier->host_bytes(extent) : HostSpan(); }
  DeviceSpan device_bytes() const { return exists() ? tier->device_bytes(extent) : DeviceSpan(); }
};

class SwapManager {
 public:
  // Allocates every home. REQUIRES: `slots` holds the gradients' homes and the update and staging
  // slots, page-aligned; `gradients` the gradient slots, in device memory. All outlive the manager.
  static Result<std::unique_ptr<SwapManager>> open(const Plan& plan, const Tiers& tiers,
                                                   HostSpan slots, DeviceSpan gradients,
                                                   const Failure& failure);

  const Home& home(SubgroupId subgroup, Role role) const {
    return records_[subgroup].homes[static_cast<size_t>(role)];
  }
  HostSpan gradient_home(SubgroupId subgroup) const { return records_[subgroup].gradient; }

  // One role between its home and `memory`: the role's bytes, rounded up to kPageBytes.
  void load(SubgroupId subgroup, Role role, HostSpan to, Urgency urgency, Completion& completion);
  void store(HostSpan from, SubgroupId subgroup, Role role, Completion& completion);

  // Keeps the books of loads and stores from now on; outlives the manager.
  void count_in(Attribution& attribution) { attribution_ = &attribution; }

  SlotPool& update_slots() { return update_slots_; }
  SlotPool& staging_slots() { return staging_slots_; }
  SlotPool& gradient_slots() { return gradient_slots_; }
  HostSpan update_bytes(const SlotPool::Slot& slot) const;
  HostSpan staging_bytes(const SlotPool::Slot& slot, uint64_t bytes) const;
  DeviceSpan gradient_bytes(uint32_t slot_index, uint64_t bytes) const;

  // A home is unsettled from the moment its update is decided until its last store is done.
  void unsettle(SubgroupId subgroup);
  void settle(SubgroupId subgroup);
  uint32_t unsettled_count() const { return unsettled_count_; }

  // Status status = co_await swap.settled(subgroup); or of all subgroups.
  auto settled(SubgroupId subgroup) const {
    return Until(
        failure_, [this, subgroup] { return !records_[subgroup].unsettled; },
        "the settling of subgroup", subgroup, WaitFor::flows(Work::kUpdate, subgroup));
  }
  template <typename Predicate>
  auto settled_or(SubgroupId subgroup, Predicate predicate) const {
    return Until(
        failure_,
        [this, subgroup, predicate] { return !records_[subgroup].unsettled || predicate(); },
        "the settling of subgroup", subgroup, WaitFor::flows(Work::kUpdate, subgroup));
  }
  auto all_settled() const {
    return Until(
        failure_, [this] { return unsettled_count_ == 0; }, "the settling of updates, now",
        unsettled_count_, WaitFor::flows(Work::kUpdate));
  }

  SwapManager(const Plan& plan, HostSpan slots, DeviceSpan gradients, const Failure& failure);

 private:
  struct Record {
    std::array<Home, kRoleCount> homes;
    HostSpan gradient;
    bool unsettled = false;
  };
  Status allocate_homes(const Plan& plan, const Tiers& tiers);

  const Failure& failure_;
  const SlotPlan update_plan_;
  const SlotPlan staging_plan_;
  const SlotPlan gradient_plan_;
  HostSpan update_memory_;
  HostSpan staging_memory_;
  DeviceSpan gradient_memory_;
  SlotPool update_slots_;
  SlotPool staging_slots_;
  SlotPool gradient_slots_;
  std::vector<Record> records_;  // by subgroup
  uint32_t unsettled_count_ = 0;
  Attribution* attribution_ = nullptr;
};

}  // namespace zoffload
