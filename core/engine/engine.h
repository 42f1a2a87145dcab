// The engine: everything between the user's verbs and the ports. All of it runs on one control
// thread, which calls poll() in a loop; the verbs are coroutines to be spawned as flows there.
// ControlThread does both for callers on other threads; the simulator does it for several ranks in
// one thread.
//
// One caller at a time per engine: verbs that wait are not safe against each other's changes to the
// gathered buckets. After an error the memory of buckets, parameters and gradients must stay until
// the engine is closed, since hardware and workers may still be at it.
//
// The first error sticks: every flow learns of it at its next wait, every later verb returns it,
// the peers are woken.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/attribution.h"
#include "core/engine/flows.h"
#include "core/engine/metered_ports.h"
#include "core/ports/clock.h"
#include "core/ports/communicator.h"

namespace zoffload {

// What the engine runs on. All of it outlives the engine.
struct EnginePorts {
  Clock& clock;
  Device& device;
  Communicator& communicator;
  Workers& workers;
  const Optimizer& optimizer;
  const GradientMath& math;
  const StateCodec& codec;
  Tiers tiers{};
  HostSpan slots = {};        // of plan.arena_bytes() less the host homes, page-aligned
  DeviceSpan gradients = {};  // of plan.gradient.total_bytes()
};

struct EngineOptions {
  uint64_t stall_timeout_ns = 60'000'000'000;  // no flow moved for this long: an error
  ResourceRates rates = {};                    // for the bounds of steps; what is 0 is measured
};

struct EngineStats {
  std::array<uint64_t, kTierCount> loaded_bytes{};    // by TierKind, since open()
  std::array<uint64_t, kTierCount> demanded_bytes{};  // of the loaded, while the user waited
  std::array<uint64_t, kTierCount> stored_bytes{};
  uint64_t gathered_bytes_max = 0;  // high-water mark of gathered buckets
  uint64_t on_demand_count = 0;     // gathers that the user had to wait for
  uint64_t prefetched_count = 0;    // gathers started ahead
  uint64_t deviation_count = 0;     // of passes from their schedule
  uint64_t skipped_step_count = 0;
  uint64_t step_count = 0;
  uint32_t update_slots_max = 0;  // high-water marks of lent slots
  uint32_t staging_slots_max = 0;
  uint32_t gradient_slots_max = 0;
  uint32_t unsettled_count = 0;  // subgroups whose update is decided or under way, now
};

class Engine {
 public:
  // Allocates every home. Nothing is allocated afterwards.
  static Result<std::unique_ptr<Engine>> open(EnginePorts ports, Plan plan, EngineOptions options);
  ~Engine();  // REQUIRES: idle()

  const Plan& plan() const { return plan_; }
  // The first error, if any; the end of a drain is none.
  Status failure() const { return draining_ ? Status() : failure_.status(); }

  // ---- Buckets. The memory is the user's; see Leases for who decides what.

  // A forward (and its backward) starts. Passes of one signature are expected to ask for the same
  // buckets.
  void begin_pass(uint64_t signature) { leases_.schedule().begin(signature); }

  // Before lease(): which memory to free, and which to allocate and offer(), in this order.
  Task<Result<Leases::Orders>> prepare(BucketId bucket);
  // Starts filling `memory` as soon as what is enqueued on `stream` has passed.
  Status offer(BucketId bucket, DeviceSpan memory, Stream stream);
  // Waits until the bucket is gathered and holds it. REQUIRES: prepared, and offered if that was
  // asked for.
  Task<Status> lease(BucketId bucket);
  // true: the memory is to be freed now; false: it stays, for another lease.
  Result<bool> release(BucketId bucket);
  // Ends all leases and returns the buckets whose memory is to be freed.
  Task<Result<std::vector<BucketId>>> release_all();
  // What the user wrote into a leased bucket becomes the truth, optimizer's master included.
  Task<Status> write_back(BucketId bucket);

  // ---- Gradients.

  // A slot in device memory for one bucket of gradients; kOutOfMemory when the caller holds them
  // all.
  Task<Result<uint32_t>> acquire_gradients();
  DeviceSpan gradient_memory(uint32_t slot, BucketId bucket) const;
  void discard_gradients(uint32_t slot);
  void reclaim_gradients();  // discards every slot that the caller holds
  // Reduces the gradients of these parameters of the bucket; takes the slot back when done. Returns
  // at once.
  Status reduce(BucketId bucket, uint32_t slot, std::vector<ParamId> params, Stream produced_on);
  // Level 1: gradients that stay in the user's memory, of the bucket's dtype, until the step's
  // updates settled. With `measured` their norm is taken.
  struct InPlaceGradient {
    ParamId param;
    HostSpan bytes;
  };
  Status present(const std::vector<InPlaceGradient>& gradients, bool measured);
  // As if none had come since the last step.
  Task<Status> forget_gradients();

  // ---- The step.

  // Decides the step (norm over all ranks, clip, skip) and returns; updates run on. Gathers wait
  // for what they need.
  Task<Result<StepReport>> step(StepOptions options);
  // Where the user knows better than the schedule in which order the next forward needs parameters:
  // the updates of all steps from now on follow it.
  void set_update_order(std::vector<ParamId> params) { update_order_ = std::move(params); }
  Task<Status> settle();  // waits until every update is home
  // Waits until these parameters are updated, their state is home, and nobody reads their
  // gradients.
  Task<Status> settle_params(std::vector<ParamId> params);

  // ---- State, between the homes and the user's memory. World of one.

  Task<Status> read_state(ParamId param, Role role, HostSpan to);
  Task<Status> write_state(ParamId param, Role role, HostSpan from);
  uint64_t update_count(ParamId param) const { return step_.numbers[param]; }
  void set_update_count(ParamId param, uint64_t count) { step_.numbers[param] = count; }

  // ---- The loop.

  void spawn(std::string name, Task<Status> task, Completion* done) {
    flows_.spawn(std::move(name), std::move(task), done, {Work::kVerb});
  }
  uint32_t poll();  // collects from every port, then resumes flows; returns how much moved
  bool idle() const { return flows_.count() == 0; }
  bool stuck() const {
    return stuck_;
  }  // what was cancelled did not come back: memory must not be freed
  void fail(const Status& status);
  // No more verbs will come: lets updates reach their homes, then ends whatever else still waits.
  void drain();
  EngineStats stats() const;
  Attribution& attribution() { return attribution_; }
  const Attribution& attribution() const { return attribution_; }

  Engine(EnginePorts ports, Plan plan, EngineOptions options);

 private:
  void watch(uint32_t moved);
  Status check_state_call(ParamId param, Role role, HostSpan memory) const;
  Status check_bucket(BucketId bucket) const;
  void spawn_updates();
  Task<Status> finish_updates();

  EnginePorts ports_;
  const Plan plan_;
  const EngineOptions options_;
  Failure failure_;
  FlowSet flows_;
  Attribution attribution_;
  MeteredDevice device_;
  MeteredWorkers workers_;
  MeteredCommunicator communicator_;
  std::unique_ptr<SwapManager> swap_;
  Leases leases_;
  Gradients gradients_;
  Collectives collectives_;
  Step step_;
  std::unique_ptr<Flows> verbs_;
  std::vector<SlotPool::Slot> held_gradients_;  // by slot: lent to the user
  std::vector<ParamId> update_order_;
  uint64_t moved_at_ns_ = 0;  // the watchdog's last sign of life
  bool cancelled_ = false;
  bool draining_ = false;  // what ends now ends on purpose, and is no failure of the run
  bool stuck_ = false;
  uint64_t step_count_ = 0;
  uint64_t skipped_step_count_ = 0;
};

}  // namespace zoffload
