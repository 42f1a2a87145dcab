// The three flows, gather, reduce and update, and the two small ones that move state between homes
// and the user: write back and transfer. Coroutines on the control thread; each reads like its line
// in docs/architecture.md.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/collectives.h"
#include "core/engine/flow_set.h"
#include "core/engine/gradients.h"
#include "core/engine/leases.h"
#include "core/engine/step.h"
#include "core/engine/swap_manager.h"
#include "core/engine/update_buffer.h"
#include "core/plan/plan.h"
#include "core/ports/device.h"
#include "core/ports/gradient_math.h"
#include "core/ports/optimizer.h"
#include "core/ports/state_codec.h"
#include "core/ports/workers.h"

namespace zoffload {

class UpdateJob;

// All of it outlives the flows.
struct FlowParts {
  const Plan& plan;
  FlowSet& flows;
  SwapManager& swap;
  Leases& leases;
  Gradients& gradients;
  Collectives& collectives;
  Step& step;
  Device& device;
  Workers& workers;
  const Optimizer& optimizer;
  const GradientMath& math;
  const StateCodec& codec;
};

class Flows {
 public:
  explicit Flows(FlowParts parts) : p_(parts) {}

  // Brings one whole bucket into the memory offered for it: this rank's shard from its homes, the
  // rest from peers.
  Task<Status> gather(Turn turn, BucketId bucket, DeviceSpan memory, Stream offered_on);

  // Takes a whole bucket of gradients, keeps this rank's shard of their mean, frees the slot.
  // `place` is its place among the reduces of the bucket, `step` the Step::count() when it was
  // asked for.
  Task<Status> reduce(Turn turn, BucketId bucket, SlotPool::Slot slot, std::vector<ParamId> params,
                      uint64_t place, uint64_t step, Stream produced_on);

  // Level 1: measures gradients where they lie.
  Task<Status> measure(SubgroupId subgroup);

  // Sums the norm over the ranks and decides the step: clip, skip, or as it is.
  Task<Status> decide(Turn turn, uint64_t schedule_hash);

  // Reads one subgroup's master weights and moments, steps it with its gradient, writes it home.
  Task<Status> update(SubgroupId subgroup);

  // Makes what the user wrote into a gathered bucket the new truth: parameter and master.
  Task<Status> write_back(BucketId bucket, DeviceSpan memory);

  // One role of one parameter between its homes and the user's memory, which has the parameter's
  // numel elements of the role's type: role_dtype(), however it is stored. Storing a parameter
  // refreshes its master and the other way round; one in place is left as it is unless it is half
  // of the master. World of one only.
  Task<Status> read_state(ParamId param, Role role, HostSpan to);
  Task<Status> write_state(ParamId param, Role role, HostSpan from);

 private:
  Task<Status> fetch(SubgroupId subgroup, DeviceSpan to);
  Task<Status> accumulate(SubgroupId subgroup, DeviceSpan from, std::vector<ParamId> params,
                          uint64_t step);
  Task<Status> write_back_piece(SubgroupId subgroup, DeviceSpan from);
  Task<Status> read_segment(SubgroupId subgroup, Segment segment, Role role, HostSpan to);
  Task<Status> write_segment(SubgroupId subgroup, Segment segment, Role role, HostSpan from);
  Task<Status> acquire_if_needed(UpdateBuffer& buffer);
  Task<Status> run(Job& job);
  void add_segments(SubgroupId subgroup, const UpdateBuffer& buffer, UpdateJob& job);
  HostSpan gradient_bytes(SubgroupId subgroup, const Segment& segment) const;

  const BucketLayout& bucket_of(SubgroupId subgroup) const {
    return p_.plan.layout.buckets[p_.plan.layout.subgroups[subgroup].bucket];
  }
  std::string name(const char* verb, SubgroupId subgroup) const;

  FlowParts p_;
};

}  // namespace zoffload
