// The plan: the home tier of every shard, and how much of every kind of memory the engine reserves
// at open(). A pure function of the model's shapes and the user's request; what does not fit is an
// error that gives the bytes missing and the setting that would fix it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/plan/layout.h"
#include "core/plan/placement.h"

namespace zoffload {

struct PlanRequest {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  Placement params;
  Placement optimizer;
  uint64_t host_bytes = 0;             // hard budget; 0 is no limit
  uint64_t device_bytes = 0;           // hard budget; 0 is no limit
  uint64_t subgroup_bytes = 16 << 20;  // of optimizer state as stored, at most
  uint64_t subgroup_numel = 0;         // elements, at most; 0 is no limit
  uint32_t workers = 1;
  uint64_t in_flight_bytes = 0;  // what the drives keep in flight, and so the update slots too
  uint64_t slot_bytes_max = 0;   // of Plan::slot_bytes(): smaller subgroups; 0 is no limit
  uint32_t prefetch = 2;         // buckets gathered ahead
  uint32_t micro_steps = 1;      // gradients of more than one are accumulated in fp32
  MomentSet moments = {};        // that the optimizer keeps
};

struct SubgroupHomes {
  TierKind param = TierKind::kHost;  // kInPlace at level 1
  TierKind state = TierKind::kHost;  // master and moments
};

struct SlotPlan {
  uint32_t count = 0;
  uint64_t bytes = 0;  // of one slot; a multiple of kPageBytes
  uint64_t total_bytes() const { return count * bytes; }
};

struct Plan {
  Layout layout;
  std::vector<SubgroupHomes> homes;               // per subgroup
  std::array<uint64_t, kTierCount> home_bytes{};  // by TierKind, gradients not counted
  uint64_t gradient_bytes = 0;                    // gradient homes, in host memory
  DType gradient_dtype = DType::kFloat32;  // of bf16 models' gradient homes; fp32 models: fp32
  SlotPlan update;                         // one subgroup's state on its way
  SlotPlan staging;                        // one subgroup's parameters or gradients
  SlotPlan gradient;                       // one bucket of gradients, in device memory
  uint32_t prefetch = 0;
  uint32_t bucket_count_max = 0;  // most buckets gathered at once; 0 is no limit

  // Memory on the way between tiers, in host memory. Of it the update slots are at most 3, one per
  // worker and as many as hold what the drives keep in flight.
  uint64_t slot_bytes() const { return update.total_bytes() + staging.total_bytes(); }
  uint64_t arena_bytes() const;   // pinned host memory: homes, gradients, slots
  uint64_t device_bytes() const;  // HBM homes and gradient slots
  std::string summary() const;    // a table for people
};

Result<Plan> make_plan(const std::vector<BucketSpec>& model, const PlanRequest& request);

// Whether a bucket keeps a role at all, and the bytes of the role's extent for `numel` elements of
// a subgroup, in the bucket's state format.
bool has_role(const BucketLayout& bucket, Role role);
uint64_t role_bytes(const BucketLayout& bucket, Role role, uint64_t numel);
// Of master and moments together.
uint64_t state_bytes(const BucketLayout& bucket, uint64_t numel);
// A role as the user sees it: the state in fp32, whatever it is stored as.
DType role_dtype(const BucketLayout& bucket, Role role, DType gradient_dtype);
uint64_t value_bytes(const BucketLayout& bucket, Role role, uint64_t numel);
// The bytes of memory that an update of `numel` elements reads and writes, added up: the gradient
// once, the weights and the state both ways, 16-bit weights that are only written once.
uint64_t update_traffic_bytes(const BucketLayout& bucket, DType grad_dtype, uint64_t numel);

}  // namespace zoffload
