#include "core/engine/swap_manager.h"

namespace zoffload {

SwapManager::SwapManager(const Plan& plan, HostSpan slots, DeviceSpan gradients,
                         const Failure& failure)
    : failure_(failure),
      update_plan_(plan.update),
      staging_plan_(plan.staging),
      gradient_plan_(plan.gradient),
      gradient_memory_(gradients),
      update_slots_("update", plan.update.count, failure),
      staging_slots_("staging", plan.staging.count, failure),
      gradient_slots_("gradient", plan.gradient.count, failure),
      records_(plan.layout.subgroups.size()) {
  ZO_CHECK(gradients.bytes() >= plan.gradient.total_bytes());
  ZO_CHECK(slots.size() ==
           plan.update.total_bytes() + plan.staging.total_bytes() + plan.gradient_bytes);
  update_memory_ = slots.first(plan.update.total_bytes());
  staging_memory_ = slots.subspan(update_memory_.size(), plan.staging.total_bytes());
  HostSpan rest = slots.subspan(update_memory_.size() + staging_memory_.size());
  for (SubgroupId id = 0; id < records_.size(); ++id) {
    const SubgroupLayout& subgroup = plan.layout.subgroups[id];
    const BucketLayout& bucket = plan.layout.buckets[subgroup.bucket];
    if (!bucket.trainable || bucket.in_place) continue;
    const DType dtype = role_dtype(bucket, Role::kGrad, plan.gradient_dtype);
    records_[id].gradient = rest.first(subgroup.numel * dtype_bytes(dtype));
    rest = rest.subspan(records_[id].gradient.size());
  }
  ZO_CHECK(rest.empty());
}

Result<std::unique_ptr<SwapManager>> SwapManager::open(const Plan& plan, const Tiers& tiers,
                                                       HostSpan slots, DeviceSpan gradients,
                                                       const Failure& failure) {
  auto manager = std::make_unique<SwapManager>(plan, slots, gradients, failure);
  ZO_TRY(manager->allocate_homes(plan, tiers));
  return manager;
}

Status SwapManager::allocate_homes(const Plan& plan, const Tiers& tiers) {
  for (SubgroupId id = 0; id < records_.size(); ++id) {
    const SubgroupLayout& subgroup = plan.layout.subgroups[id];
    const BucketLayout& bucket = plan.layout.buckets[subgroup.bucket];
    for (Role role : {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
      if (!has_role(bucket, role)) continue;
      const SubgroupHomes& homes = plan.homes[id];
      const TierKind kind = role == Role::kParam ? homes.param : homes.state;
      if (kind == TierKind::kInPlace) continue;
      Home& home = records_[id].homes[static_cast<size_t>(role)];
      home.tier = tiers[static_cast<size_t>(kind)];
      ZO_CHECK(home.tier != nullptr);
      ZO_ASSIGN_OR_RETURN(home.extent,
                          home.tier->allocate(role_bytes(bucket, role, subgroup.numel)));
    }
  }
  return Status();
}

void SwapManager::load(SubgroupId subgroup, Role role, HostSpan to, Urgency urgency,
                       Completion& completion) {
  const Home& from = home(subgroup, role);
  ZO_CHECK(from.exists());
  from.tier->load(from.extent, to, urgency, completion);
  if (attribution_ == nullptr) return;
  attribution_->loading(subgroup, role, from.tier->kind(), from.extent, completion);
}

void SwapManager::store(HostSpan from, SubgroupId subgroup, Role role, Completion& completion) {
  const Home& to = home(subgroup, role);
  ZO_CHECK(to.exists());
  to.tier->store(from, to.extent, completion);
  if (attribution_ == nullptr) return;
  attribution_->storing(subgroup, role, to.tier->kind(), to.extent, completion);
}

HostSpan SwapManager::update_bytes(const SlotPool::Slot& slot) const {
  return update_memory_.subspan(slot.index() * update_plan_.bytes, update_plan_.bytes);
}

HostSpan SwapManager::staging_bytes(const SlotPool::Slot& slot, uint64_t bytes) const {
  ZO_CHECK(bytes <= staging_plan_.bytes);
  return staging_memory_.subspan(slot.index() * staging_plan_.bytes, bytes);
}

DeviceSpan SwapManager::gradient_bytes(uint32_t slot_index, uint64_t bytes) const {
  ZO_CHECK(bytes <= gradient_plan_.bytes);
  return gradient_memory_.subspan(slot_index * gradient_plan_.bytes, bytes);
}

void SwapManager::unsettle(SubgroupId subgroup) {
  ZO_CHECK(!records_[subgroup].unsettled);
  records_[subgroup].unsettled = true;
  ++unsettled_count_;
}

void SwapManager::settle(SubgroupId subgroup) {
  ZO_CHECK(records_[subgroup].unsettled);
  records_[subgroup].unsettled = false;
  --unsettled_count_;
}

}  // namespace zoffload
