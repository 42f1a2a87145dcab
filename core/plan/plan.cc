#include "core/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/format.h"

namespace zoffload {

namespace {

constexpr uint64_t kSubgroupNumelMin = 4 * kNormChunk;
constexpr uint32_t kUpdateSlotsMin = 2;
constexpr uint32_t kStagingSlotsMin = 2;
constexpr uint32_t kStagingSlots = 4;
constexpr uint32_t kGradientSlots = 2;

// Deals homes out so that after every subgroup each tier has its share of the elements: error
// diffusion, which also spreads the resident ones evenly through the order. {1/2, 1/2} and equal
// subgroups give host nvme host nvme ...
class Dealer {
 public:
  explicit Dealer(const Placement& shares) : shares_{shares.hbm, shares.host, shares.nvme} {}

  TierKind next(uint64_t numel) {
    dealt_ += numel;
    size_t best = 0;
    double owed_max = -std::numeric_limits<double>::infinity();
    for (size_t tier = 0; tier < kTierCount; ++tier) {
      if (shares_[tier] <= 0) continue;
      const double owed =
          shares_[tier] * static_cast<double>(dealt_) - static_cast<double>(given_[tier]);
      if (owed > owed_max) {
        owed_max = owed;
        best = tier;
      }
    }
    given_[best] += numel;
    return static_cast<TierKind>(best);
  }

 private:
  std::array<double, kTierCount> shares_;
  std::array<uint64_t, kTierCount> given_{};
  uint64_t dealt_ = 0;
};

Status check_shares(const Placement& shares, const char* key) {
  const double sum = shares.hbm + shares.host + shares.nvme;
  const bool in_range = shares.hbm >= 0 && shares.host >= 0 && shares.nvme >= 0;
  if (in_range && std::abs(sum - 1) < 1e-6) return Status();
  return Status(Code::kInvalidArgument, std::string(key) +
                                            ": the shares of the tiers must be at least 0 and " +
                                            "add up to 1; they add up to " + std::to_string(sum));
}

bool in_slot(TierKind home) { return home == TierKind::kHbm || home == TierKind::kNvme; }

// The elements of a subgroup that has as many bytes as the request allows, in the bucket whose
// elements take the most. Weights that are their own master count as state.
uint64_t wanted_subgroup_numel(const std::vector<BucketSpec>& model, const PlanRequest& request) {
  uint64_t chunk_bytes = kNormChunk;
  for (const BucketSpec& spec : model) {
    BucketLayout bucket;
    bucket.dtype = spec.dtype;
    bucket.trainable = spec.trainable;
    bucket.format = spec.format;
    bucket.moments = request.moments;
    uint64_t bytes = state_bytes(bucket, kNormChunk);
    if (!bucket.has_master()) bytes += role_bytes(bucket, Role::kParam, kNormChunk);
    chunk_bytes = std::max(chunk_bytes, bytes);
  }
  uint64_t numel = request.subgroup_bytes / chunk_bytes * kNormChunk;
  if (request.subgroup_numel != 0) {
    numel = std::min(numel, request.subgroup_numel / kNormChunk * kNormChunk);
  }
  return std::max(numel, kNormChunk);
}

void place_homes(const PlanRequest& request, Plan& plan) {
  // Parameters that are updated are dealt apart from the others, so that updates and gathers both
  // meet an even mixture.
  Dealer trained_params(request.params);
  Dealer frozen_params(request.params);
  Dealer states(request.optimizer);
  uint64_t update_bytes_max = 0;
  uint64_t piece_bytes_max = 0;
  for (const SubgroupLayout& subgroup : plan.layout.subgroups) {
    const BucketLayout& bucket = plan.layout.buckets[subgroup.bucket];
    SubgroupHomes homes;
    Dealer& params = bucket.trainable ? trained_params : frozen_params;
    homes.param = bucket.in_place ? TierKind::kInPlace : params.next(subgroup.numel);
    homes.state = bucket.trainable ? states.next(subgroup.numel) : homes.param;
    uint64_t update_bytes = 0;
    for (Role role : {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
      if (!has_role(bucket, role)) continue;
      const TierKind home = role == Role::kParam ? homes.param : homes.state;
      if (home == TierKind::kInPlace) continue;
      const uint64_t bytes = round_up(role_bytes(bucket, role, subgroup.numel), kPageBytes);
      plan.home_bytes[static_cast<size_t>(home)] += bytes;
      if (in_slot(home)) update_bytes += bytes;
    }
    if (bucket.trainable && !bucket.in_place) {
      const DType dtype = role_dtype(bucket, Role::kGrad, plan.gradient_dtype);
      plan.gradient_bytes += subgroup.numel * dtype_bytes(dtype);
    }
    if (!bucket.in_place) {
      piece_bytes_max = std::max(piece_bytes_max, subgroup.numel * dtype_bytes(bucket.dtype));
    }
    update_bytes_max = std::max(update_bytes_max, update_bytes);
    plan.homes.push_back(homes);
  }
  plan.update.bytes = round_up(update_bytes_max, kPageBytes);
  plan.staging.bytes = round_up(piece_bytes_max, kPageBytes);
}

Plan try_plan(const std::vector<BucketSpec>& model, const PlanRequest& request, uint64_t numel,
              bool smallest_counts) {
  Plan plan;
  plan.layout = make_layout(model, request.rank, request.world_size, numel);
  for (BucketLayout& bucket : plan.layout.buckets) bucket.moments = request.moments;
  plan.prefetch = request.prefetch;
  plan.gradient_dtype = request.micro_steps > 1 ? DType::kFloat32 : DType::kBFloat16;
  place_homes(request, plan);
  if (plan.update.bytes > 0) {
    const auto in_flight = std::min<uint64_t>(ceil_div(request.in_flight_bytes, plan.update.bytes),
                                              plan.layout.subgroups.size());
    plan.update.count =
        smallest_counts ? kUpdateSlotsMin : 3 + request.workers + static_cast<uint32_t>(in_flight);
  }
  if (plan.staging.bytes > 0)
    plan.staging.count = smallest_counts ? kStagingSlotsMin : kStagingSlots;
  for (const BucketLayout& bucket : plan.layout.buckets) {
    if (!bucket.trainable || bucket.in_place) continue;
    plan.gradient.count = kGradientSlots;
    plan.gradient.bytes = std::max(plan.gradient.bytes, round_up(bucket.bytes(), kPageBytes));
  }
  return plan;
}

Status check_device_budget(const PlanRequest& request, Plan& plan) {
  if (request.device_bytes == 0) return Status();
  uint64_t bucket_bytes_max = 0;
  for (const BucketLayout& bucket : plan.layout.buckets) {
    if (!bucket.in_place) bucket_bytes_max = std::max(bucket_bytes_max, bucket.bytes());
  }
  const uint64_t needed = plan.device_bytes() + 2 * bucket_bytes_max;
  if (needed > request.device_bytes) {
    return Status(Code::kOutOfMemory, "device_bytes: " + format_bytes(needed) +
                                          " are needed for HBM homes, gradient slots and two "
                                          "gathered buckets, " +
                                          format_bytes(request.device_bytes) + " are given, " +
                                          format_bytes(needed - request.device_bytes) +
                                          " are missing: raise device_bytes, or keep less in hbm");
  }
  if (bucket_bytes_max > 0) {
    const uint64_t count = (request.device_bytes - plan.device_bytes()) / bucket_bytes_max;
    plan.bucket_count_max = static_cast<uint32_t>(std::min<uint64_t>(count, 1u << 20));
  }
  return Status();
}

}  // namespace

bool has_role(const BucketLayout& bucket, Role role) {
  switch (role) {
    case Role::kParam: return true;
    case Role::kMaster: return bucket.has_master();
    case Role::kGrad: return bucket.trainable;
    case Role::kExpAvg: return bucket.trainable && bucket.moments.exp_avg;
    case Role::kExpAvgSq: return bucket.trainable && bucket.moments.exp_avg_sq;
  }
  return false;
}

DType role_dtype(const BucketLayout& bucket, Role role, DType gradient_dtype) {
  if (role == Role::kParam) return bucket.dtype;
  if (role == Role::kGrad && bucket.dtype == DType::kBFloat16) return gradient_dtype;
  return DType::kFloat32;
}

uint64_t role_bytes(const BucketLayout& bucket, Role role, uint64_t numel) {
  switch (role) {
    case Role::kParam: return numel * dtype_bytes(bucket.dtype);
    case Role::kMaster: return numel * (bucket.split() ? sizeof(uint16_t) : sizeof(float));
    case Role::kExpAvg:
    case Role::kExpAvgSq: return moment_bytes(bucket.format.moments, numel);
    case Role::kGrad: break;
  }
  ZO_CHECK(role != Role::kGrad);  // its type depends on the plan
  return 0;
}

uint64_t state_bytes(const BucketLayout& bucket, uint64_t numel) {
  uint64_t bytes = 0;
  for (Role role : {Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
    if (has_role(bucket, role)) bytes += role_bytes(bucket, role, numel);
  }
  return bytes;
}

uint64_t value_bytes(const BucketLayout& bucket, Role role, uint64_t numel) {
  ZO_CHECK(role != Role::kGrad);
  return numel * dtype_bytes(role_dtype(bucket, role, DType::kFloat32));
}

uint64_t update_traffic_bytes(const BucketLayout& bucket, DType grad_dtype, uint64_t numel) {
  uint64_t bytes = numel * dtype_bytes(grad_dtype);
  for (const Role role : {Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
    if (has_role(bucket, role)) bytes += 2 * role_bytes(bucket, role, numel);
  }
  const uint64_t weights = numel * dtype_bytes(bucket.dtype);
  const bool written_only = bucket.has_master() && !bucket.split();
  return bytes + (written_only ? weights : 2 * weights);
}

uint64_t Plan::arena_bytes() const {
  return home_bytes[static_cast<size_t>(TierKind::kHost)] + gradient_bytes + slot_bytes();
}

uint64_t Plan::device_bytes() const {
  return home_bytes[static_cast<size_t>(TierKind::kHbm)] + gradient.total_bytes();
}

Result<Plan> make_plan(const std::vector<BucketSpec>& model, const PlanRequest& request) {
  ZO_TRY(check_shares(request.params, "params"));
  ZO_TRY(check_shares(request.optimizer, "optimizer"));
  uint64_t numel = wanted_subgroup_numel(model, request);
  // Larger subgroups are better for the disk; the budget decides how large. Fewer slots come before
  // smaller ones only at the very end, since fewer than three stop reads, arithmetic and writes
  // from overlapping.
  Plan plan = try_plan(model, request, numel, false);
  const auto too_large = [&request](const Plan& p) {
    return (request.host_bytes != 0 && p.arena_bytes() > request.host_bytes) ||
           (request.slot_bytes_max != 0 && p.slot_bytes() > request.slot_bytes_max);
  };
  while (too_large(plan) && numel > kSubgroupNumelMin) {
    numel = std::max(numel / 2 / kNormChunk * kNormChunk, kSubgroupNumelMin);
    plan = try_plan(model, request, numel, false);
  }
  if (request.host_bytes != 0 && plan.arena_bytes() > request.host_bytes) {
    plan = try_plan(model, request, numel, true);
  }
  if (request.host_bytes != 0 && plan.arena_bytes() > request.host_bytes) {
    const uint64_t homes = plan.home_bytes[static_cast<size_t>(TierKind::kHost)];
    return Status(Code::kOutOfMemory,
                  "host_bytes: " + format_bytes(plan.arena_bytes()) + " are needed (" +
                      format_bytes(homes) + " of homes, " + format_bytes(plan.gradient_bytes) +
                      " of gradients, " + format_bytes(plan.slot_bytes()) + " of slots), " +
                      format_bytes(request.host_bytes) + " are given, " +
                      std::to_string(plan.arena_bytes() - request.host_bytes) +
                      " bytes are missing: raise host_bytes, or move a larger share to nvme");
  }
  ZO_TRY(check_device_budget(request, plan));
  return plan;
}

std::string Plan::summary() const {
  std::string text = std::to_string(layout.numel_total()) + " parameters in " +
                     std::to_string(layout.buckets.size()) + " buckets, " +
                     std::to_string(layout.subgroups.size()) + " subgroups\n";
  for (TierKind tier : {TierKind::kHbm, TierKind::kHost, TierKind::kNvme}) {
    text += std::string("  homes in ") + tier_name(tier) + ": " +
            format_bytes(home_bytes[static_cast<size_t>(tier)]) + "\n";
  }
  for (std::string_view name : state_format_names()) {
    uint64_t bytes = 0;
    for (const SubgroupLayout& subgroup : layout.subgroups) {
      const BucketLayout& bucket = layout.buckets[subgroup.bucket];
      if (state_format_name(bucket.format) == name) bytes += state_bytes(bucket, subgroup.numel);
    }
    if (bytes > 0) text += "  state as " + std::string(name) + ": " + format_bytes(bytes) + "\n";
  }
  const auto slots = [](const SlotPlan& plan) {
    return std::to_string(plan.count) + " x " + format_bytes(plan.bytes);
  };
  text += "  gradients in host: " + format_bytes(gradient_bytes) + "\n";
  text += "  update slots " + slots(update) + ", staging slots " + slots(staging) +
          ", gradient slots " + slots(gradient) + "\n";
  text +=
      "  of that in pinned host memory, update and staging slots: " + format_bytes(slot_bytes()) +
      "\n";
  text += "  pinned host memory in all: " + format_bytes(arena_bytes()) + "\n";
  return text;
}

}  // namespace zoffload
