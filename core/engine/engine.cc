#include "core/engine/engine.h"

#include <algorithm>

#include "core/base/format.h"
#include "core/plan/update_order.h"

namespace zoffload {

Engine::Engine(EnginePorts ports, Plan plan, EngineOptions options)
    : ports_(ports),
      plan_(std::move(plan)),
      options_(options),
      flows_([this](const Status& status) { fail(status); }),
      attribution_(ports.clock, plan_, flows_, ports.workers,
                   ports.tiers[static_cast<size_t>(TierKind::kNvme)], options.rates),
      device_(ports.device, attribution_),
      workers_(ports.workers, attribution_),
      communicator_(ports.communicator, attribution_),
      leases_(plan_, failure_),
      gradients_(plan_.layout, failure_),
      collectives_(communicator_, failure_),
      step_(failure_),
      held_gradients_(plan_.gradient.count) {
  step_.numbers.resize(plan_.layout.params.size());
  moved_at_ns_ = ports_.clock.now_ns();
}

Result<std::unique_ptr<Engine>> Engine::open(EnginePorts ports, Plan plan, EngineOptions options) {
  auto engine = std::make_unique<Engine>(ports, std::move(plan), options);
  Engine& e = *engine;
  ZO_ASSIGN_OR_RETURN(
      e.swap_, SwapManager::open(e.plan_, ports.tiers, ports.slots, ports.gradients, e.failure_));
  e.swap_->count_in(e.attribution_);
  e.verbs_ = std::make_unique<Flows>(FlowParts{e.plan_, e.flows_, *e.swap_, e.leases_, e.gradients_,
                                               e.collectives_, e.step_, e.device_, e.workers_,
                                               ports.optimizer, ports.math, ports.codec});
  return engine;
}

Engine::~Engine() { ZO_CHECK(idle()); }

namespace {

// A verb whose caller gave up waiting (a signal) and went on must not act when it wakes.
Status overtaken() { return Status(Code::kTimeout, "overtaken by a later call"); }

}  // namespace

// ---- Buckets

Status Engine::check_bucket(BucketId bucket) const {
  if (failure_.happened()) return failure_.status();
  ZO_CHECK(bucket < plan_.layout.buckets.size());
  ZO_CHECK(!plan_.layout.buckets[bucket].in_place);
  return Status();
}

Task<Result<Leases::Orders>> Engine::prepare(BucketId bucket) {
  ZO_CO_TRY(check_bucket(bucket));
  const std::vector<BucketId> candidates = leases_.access(bucket);
  const uint64_t number = leases_.access_count();
  for (BucketId other : candidates) {
    Status status = co_await leases_.at_rest(other);
    ZO_CO_TRY(status);
  }
  if (leases_.access_count() != number) co_return overtaken();
  co_return leases_.prepare(bucket);
}

Status Engine::offer(BucketId bucket, DeviceSpan memory, Stream stream) {
  ZO_TRY(check_bucket(bucket));
  leases_.offer(bucket, memory);
  flows_.spawn("gather " + plan_.layout.buckets[bucket].name,
               verbs_->gather(collectives_.take_turn(), bucket, memory, stream), nullptr,
               {Work::kGather, bucket});
  return Status();
}

Task<Status> Engine::lease(BucketId bucket) {
  ZO_CO_TRY(check_bucket(bucket));
  const uint64_t number = leases_.access_count();
  Status status = co_await leases_.here(bucket);
  ZO_CO_TRY(status);
  if (leases_.access_count() != number) co_return overtaken();
  leases_.lease(bucket);
  co_return Status();
}

Result<bool> Engine::release(BucketId bucket) {
  ZO_TRY(check_bucket(bucket));
  return leases_.release(bucket);
}

Task<Result<std::vector<BucketId>>> Engine::release_all() {
  for (BucketId bucket = 0; bucket < plan_.layout.buckets.size(); ++bucket) {
    Status status = co_await leases_.at_rest(bucket);
    ZO_CO_TRY(status);
  }
  co_return leases_.drop_all(true);
}

Task<Status> Engine::write_back(BucketId bucket) {
  ZO_CO_TRY(check_bucket(bucket));
  ZO_CHECK(leases_.lease_count(bucket) > 0);
  Status status = co_await verbs_->write_back(bucket, leases_.memory(bucket));
  co_return status;
}

// ---- Gradients

Task<Result<uint32_t>> Engine::acquire_gradients() {
  ZO_CO_TRY(failure_.status());
  const auto held = std::count_if(held_gradients_.begin(), held_gradients_.end(),
                                  [](const SlotPool::Slot& slot) { return slot.held(); });
  if (held == static_cast<long>(plan_.gradient.count)) {
    co_return Status(Code::kOutOfMemory, "all " + std::to_string(held) +
                                             " gradient slots are being filled: reduce one first");
  }
  auto slot = co_await swap_->gradient_slots().acquire();
  ZO_CO_TRY(slot.status());
  const uint32_t index = slot->index();
  held_gradients_[index] = std::move(*slot);
  co_return index;
}

DeviceSpan Engine::gradient_memory(uint32_t slot, BucketId bucket) const {
  ZO_CHECK(held_gradients_[slot].held());
  return swap_->gradient_bytes(slot, plan_.layout.buckets[bucket].bytes());
}

void Engine::discard_gradients(uint32_t slot) { held_gradients_[slot] = SlotPool::Slot(); }

void Engine::reclaim_gradients() {
  for (SlotPool::Slot& slot : held_gradients_) slot = SlotPool::Slot();
}

Status Engine::reduce(BucketId bucket, uint32_t slot, std::vector<ParamId> params,
                      Stream produced_on) {
  ZO_TRY(check_bucket(bucket));
  const BucketLayout& layout = plan_.layout.buckets[bucket];
  ZO_CHECK(layout.trainable);
  ZO_CHECK(held_gradients_[slot].held());
  for (ParamId param : params) {
    ZO_CHECK(plan_.layout.params[param].bucket == bucket);
    gradients_.post(param);
  }
  flows_.spawn(
      "reduce " + layout.name,
      verbs_->reduce(collectives_.take_turn(), bucket, std::move(held_gradients_[slot]),
                     std::move(params), gradients_.take_place(bucket), step_.count(), produced_on),
      nullptr, {Work::kReduce, bucket});
  return Status();
}

Status Engine::present(const std::vector<InPlaceGradient>& gradients, bool measured) {
  if (failure_.happened()) return failure_.status();
  const auto& posted = gradients_.posted();
  if (std::find(posted.begin(), posted.end(), 1) != posted.end()) {
    return Status(Code::kInvalidArgument, "gradients were presented already: step() comes first");
  }
  for (const InPlaceGradient& gradient : gradients) {
    const ParamLayout& param = plan_.layout.params[gradient.param];
    const BucketLayout& bucket = plan_.layout.buckets[param.bucket];
    ZO_CHECK(bucket.in_place);
    ZO_CHECK(bucket.trainable);
    ZO_CHECK(gradient.bytes.size() == param.numel * dtype_bytes(bucket.dtype));
    gradients_.post(gradient.param);
    gradients_.mark_arrived(gradient.param);
    gradients_.set_in_place(gradient.param, gradient.bytes);
  }
  if (!measured) return Status();
  for (SubgroupId id = 0; id < plan_.layout.subgroups.size(); ++id) {
    const SubgroupLayout& subgroup = plan_.layout.subgroups[id];
    if (!plan_.layout.buckets[subgroup.bucket].in_place || !gradients_.any_posted(subgroup))
      continue;
    gradients_.take_place(subgroup.bucket);
    flows_.spawn("measure subgroup " + std::to_string(id), verbs_->measure(id), nullptr,
                 {Work::kReduce, subgroup.bucket});
  }
  return Status();
}

Task<Status> Engine::forget_gradients() {
  Status status = co_await gradients_.all_reduced();
  ZO_CO_TRY(status);
  gradients_.forget();
  co_return Status();
}

// ---- The step

Task<Result<StepReport>> Engine::step(StepOptions options) {
  attribution_.enter_step();
  ZO_CO_TRY(failure_.status());
  for (const ParamLayout& param : plan_.layout.params)
    ZO_CHECK(param.group < options.hypers.size());
  for (BucketId bucket = 0; bucket < plan_.layout.buckets.size(); ++bucket) {
    const BucketLayout& layout = plan_.layout.buckets[bucket];
    if (layout.trainable && leases_.lease_count(bucket) > 0) {
      co_return Status(Code::kInvalidArgument,
                       "bucket " + layout.name + " is still gathered: step() changes it");
    }
  }
  const Turn turn = collectives_.take_turn();  // a refused step must not hold up later turns
  for (BucketId bucket = 0; bucket < plan_.layout.buckets.size(); ++bucket) {
    Status status = co_await leases_.at_rest(bucket);
    ZO_CO_TRY(status);
  }
  leases_.expire();
  Status status = co_await swap_->all_settled();  // of the step before
  ZO_CO_TRY(status);

  step_.options = std::move(options);
  step_.report = StepReport();
  step_.active = gradients_.posted();
  step_.in_place = gradients_.in_place();
  step_.open();
  spawn_updates();
  status = co_await verbs_->decide(turn, leases_.schedule().hash());
  if (!status.ok()) fail(status);
  ZO_CO_TRY(status);
  ++step_count_;
  if (step_.report.skipped) ++skipped_step_count_;
  attribution_.end_step();
  co_return step_.report;
}

void Engine::spawn_updates() {
  const Layout& layout = plan_.layout;
  const auto order = update_order(layout, leases_.schedule().first_use_order(), update_order_);
  for (SubgroupId id : order) {
    if (!gradients_.any_posted(layout.subgroups[id])) continue;
    const BucketLayout& bucket = layout.buckets[layout.subgroups[id].bucket];
    swap_->unsettle(id);
    flows_.spawn("step " + std::to_string(step_.count()) + ": update subgroup " +
                     std::to_string(id - bucket.first_subgroup) + " of " + bucket.name,
                 verbs_->update(id), nullptr, {Work::kUpdate, id});
  }
}

Task<Status> Engine::settle() {
  attribution_.enter_step();
  Status status = co_await swap_->all_settled();
  if (status.ok()) attribution_.settled();
  co_return status;
}

Task<Status> Engine::settle_params(std::vector<ParamId> params) {
  for (ParamId param : params) {
    for (SubgroupId id : subgroups_of(plan_.layout, param)) {
      Status status = co_await swap_->settled(id);
      ZO_CO_TRY(status);
    }
  }
  co_return failure_.status();
}

// ---- State

Status Engine::check_state_call(ParamId param, Role role, HostSpan memory) const {
  if (failure_.happened()) return failure_.status();
  ZO_CHECK(param < plan_.layout.params.size());
  if (plan_.layout.world_size != 1) {
    return Status(Code::kUnsupported,
                  "the state of one parameter can be read and written in a world of one rank");
  }
  const ParamLayout& layout = plan_.layout.params[param];
  const BucketLayout& bucket = plan_.layout.buckets[layout.bucket];
  if (role == Role::kGrad || !has_role(bucket, role)) {
    return Status(Code::kInvalidArgument, layout.name + " keeps no " + role_name(role));
  }
  ZO_CHECK(memory.size() == value_bytes(bucket, role, layout.numel));
  return Status();
}

Task<Status> Engine::read_state(ParamId param, Role role, HostSpan to) {
  ZO_CO_TRY(check_state_call(param, role, to));
  const BucketId bucket = plan_.layout.params[param].bucket;
  if (role == Role::kParam && plan_.layout.buckets[bucket].in_place) {
    co_return Status(Code::kInvalidArgument,
                     plan_.layout.params[param].name + " lies in the caller's own memory");
  }
  Status status = co_await leases_.at_rest(bucket);  // a home serves one at a time
  ZO_CO_TRY(status);
  status = co_await verbs_->read_state(param, role, to);
  co_return status;
}

Task<Status> Engine::write_state(ParamId param, Role role, HostSpan from) {
  ZO_CO_TRY(check_state_call(param, role, from));
  Status status = co_await leases_.at_rest(plan_.layout.params[param].bucket);
  ZO_CO_TRY(status);
  leases_.expire(plan_.layout.params[param].bucket);
  status = co_await verbs_->write_state(param, role, from);
  if (!status.ok()) fail(status);
  co_return status;
}

// ---- The loop

uint32_t Engine::poll() {
  uint32_t moved = ports_.device.poll() + ports_.communicator.poll() + ports_.workers.poll();
  for (Tier* tier : ports_.tiers) {
    if (tier != nullptr) moved += tier->poll();
  }
  moved += flows_.tick();
  watch(moved);
  return moved;
}

void Engine::watch(uint32_t moved) {
  const uint64_t now_ns = ports_.clock.now_ns();
  if (moved > 0) attribution_.look_at_user(now_ns);
  if (moved > 0 || idle()) {
    moved_at_ns_ = now_ns;
    return;
  }
  if (now_ns - moved_at_ns_ < options_.stall_timeout_ns) return;
  moved_at_ns_ = now_ns;
  if (cancelled_) {
    stuck_ = true;
    return;
  }
  fail(Status(Code::kTimeout,
              "nothing has moved for " +
                  format_seconds(static_cast<double>(options_.stall_timeout_ns) * 1e-9) +
                  "; what waits for what:" + flows_.describe(20)));
  cancelled_ = true;
  for (Tier* tier : ports_.tiers) {
    if (tier != nullptr) tier->cancel();
  }
}

void Engine::fail(const Status& status) {
  if (failure_.set(status)) ports_.communicator.abort(status);
}

void Engine::drain() { flows_.spawn("drain", finish_updates()); }

Task<Status> Engine::finish_updates() {
  // Gathers and reduces end by themselves, and the peers need this rank's part in them.
  for (BucketId bucket = 0; bucket < plan_.layout.buckets.size(); ++bucket) {
    Status status = co_await leases_.at_rest(bucket);
    ZO_CO_TRY(status);
  }
  Status status = co_await gradients_.all_reduced();
  ZO_CO_TRY(status);
  status = co_await swap_->all_settled();
  ZO_CO_TRY(status);
  if (flows_.count() == 1) co_return Status();  // this flow alone
  draining_ = true;
  co_return Status(Code::kInvalidArgument, "the engine is closed");
}

EngineStats Engine::stats() const {
  EngineStats stats;
  for (size_t i = 0; i < kTierCount; ++i) {
    if (ports_.tiers[i] == nullptr) continue;
    stats.loaded_bytes[i] = ports_.tiers[i]->loaded_bytes();
    stats.demanded_bytes[i] = ports_.tiers[i]->demanded_bytes();
    stats.stored_bytes[i] = ports_.tiers[i]->stored_bytes();
  }
  stats.gathered_bytes_max = leases_.bytes_max();
  stats.on_demand_count = leases_.on_demand_count();
  stats.prefetched_count = leases_.prefetched_count();
  stats.deviation_count = leases_.schedule().deviation_count();
  stats.skipped_step_count = skipped_step_count_;
  stats.step_count = step_count_;
  stats.update_slots_max = swap_->update_slots().lent_count_max();
  stats.staging_slots_max = swap_->staging_slots().lent_count_max();
  stats.gradient_slots_max = swap_->gradient_slots().lent_count_max();
  stats.unsettled_count = swap_->unsettled_count();
  return stats;
}

}  // namespace zoffload
