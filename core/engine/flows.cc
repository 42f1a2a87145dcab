#include "core/engine/flows.h"

#include <algorithm>
#include <cmath>

#include "core/engine/jobs.h"
#include "core/engine/state_jobs.h"
#include "core/engine/update_views.h"

namespace zoffload {

std::string Flows::name(const char* verb, SubgroupId subgroup) const {
  const BucketLayout& bucket = bucket_of(subgroup);
  return std::string(verb) + " subgroup " + std::to_string(subgroup - bucket.first_subgroup) +
         " of " + bucket.name;
}

Task<Status> Flows::run(Job& job) {
  Operation done("a worker");
  p_.workers.submit(job, done);
  Status status = co_await done;
  co_return status;
}

Task<Status> Flows::acquire_if_needed(UpdateBuffer& buffer) {
  if (!buffer.needs_slot()) co_return Status();
  auto slot = co_await p_.swap.update_slots().acquire();
  ZO_CO_TRY(slot.status());
  buffer.use(std::move(*slot));
  co_return Status();
}

// ---- gather

Task<Status> Flows::gather(Turn turn, BucketId bucket, DeviceSpan memory, Stream offered_on) {
  Operation offered("the stream that offered the memory");
  p_.device.fence(offered_on, offered);
  Status status = co_await offered;
  ZO_CO_TRY(status);

  const BucketLayout& layout = p_.plan.layout.buckets[bucket];
  const DeviceSpan own = p_.plan.layout.own_shard(bucket, memory);
  OperationSet pieces("pieces of the shard");
  for (uint32_t i = 0; i < layout.subgroup_count; ++i) {
    const SubgroupId id = layout.first_subgroup + i;
    p_.flows.spawn(name("fetch", id), fetch(id, p_.plan.layout.piece(id, own)), &pieces.add());
  }
  status = co_await pieces.all();
  ZO_CO_TRY(status);
  status = co_await p_.collectives.all_gather(turn, own, memory);
  ZO_CO_TRY(status);
  p_.leases.publish(bucket);
  co_return Status();
}

// Pulls one piece of the shard from whichever tier holds it.
Task<Status> Flows::fetch(SubgroupId subgroup, DeviceSpan to) {
  Status status = co_await p_.swap.settled(subgroup);  // the last update may still write it home
  ZO_CO_TRY(status);
  const Home& home = p_.swap.home(subgroup, Role::kParam);
  Operation copy("the copy to the device");
  if (const DeviceSpan here = home.device_bytes(); !here.empty()) {
    p_.device.copy_on_device(here.subspan(0, to.bytes()), to, copy);
    status = co_await copy;
    co_return status;
  }

  SlotPool::Slot staged;
  HostSpan from = home.host_bytes();  // host memory is the hub: nothing to load
  if (from.empty()) {
    auto slot = co_await p_.swap.staging_slots().acquire();
    ZO_CO_TRY(slot.status());
    staged = std::move(*slot);
    from = p_.swap.staging_bytes(staged, round_up(home.extent.bytes, kPageBytes));
    Operation load("the load of parameters");
    const BucketId bucket = p_.plan.layout.subgroups[subgroup].bucket;
    p_.swap.load(subgroup, Role::kParam, from, p_.leases.urgency(bucket), load);
    status = co_await load;
    ZO_CO_TRY(status);
  }
  p_.device.copy_to_device(from.first(to.bytes()), to, copy);
  status = co_await copy;
  co_return status;
}

// ---- reduce

Task<Status> Flows::reduce(Turn turn, BucketId bucket, SlotPool::Slot slot,
                           std::vector<ParamId> params, uint64_t place, uint64_t step,
                           Stream produced_on) {
  Operation produced("the stream that produced the gradients");
  p_.device.fence(produced_on, produced);
  Status status = co_await produced;
  ZO_CO_TRY(status);

  const BucketLayout& layout = p_.plan.layout.buckets[bucket];
  const DeviceSpan whole = p_.swap.gradient_bytes(slot.index(), layout.bytes());
  const DeviceSpan own = p_.plan.layout.own_shard(bucket, whole);  // in place: needs no slot
  status = co_await p_.collectives.reduce_scatter_mean(turn, whole, own, layout.dtype);
  ZO_CO_TRY(status);
  status = co_await p_.gradients.my_place(bucket, place);
  ZO_CO_TRY(status);

  OperationSet pieces("pieces of the gradient shard");
  for (uint32_t i = 0; i < layout.subgroup_count; ++i) {
    const SubgroupId id = layout.first_subgroup + i;
    p_.flows.spawn(name("accumulate", id),
                   accumulate(id, p_.plan.layout.piece(id, own), params, step), &pieces.add());
  }
  status = co_await pieces.all();
  ZO_CO_TRY(status);
  for (ParamId param : params) p_.gradients.mark_arrived(param);
  p_.gradients.leave(bucket);
  co_return Status();
}

Task<Status> Flows::accumulate(SubgroupId subgroup, DeviceSpan from, std::vector<ParamId> params,
                               uint64_t step) {
  const SubgroupLayout& layout = p_.plan.layout.subgroups[subgroup];
  const BucketLayout& bucket = bucket_of(subgroup);
  const auto arrives = [&](ParamId param) {
    return std::find(params.begin(), params.end(), param) != params.end();
  };
  const bool touched = std::any_of(layout.segments.begin(), layout.segments.end(),
                                   [&](const Segment& s) { return arrives(s.param); });
  if (!touched) co_return Status();
  // The last step's update may still read the gradient's home. Once our own step is open, none
  // does: it waits for us.
  Status status =
      co_await p_.swap.settled_or(subgroup, [this, step] { return p_.step.count() > step; });
  ZO_CO_TRY(status);
  auto slot = co_await p_.swap.staging_slots().acquire();
  ZO_CO_TRY(slot.status());
  const HostSpan staged = p_.swap.staging_bytes(*slot, from.bytes());
  Operation copy("the copy of gradients to the host");
  p_.device.copy_to_host(from, staged, copy);
  status = co_await copy;
  ZO_CO_TRY(status);

  const DType home_dtype = role_dtype(bucket, Role::kGrad, p_.plan.gradient_dtype);
  GradientJob job(p_.math, bucket.dtype, home_dtype, p_.gradients.chunk_sums(subgroup));
  for (const Segment& segment : layout.segments) {
    const bool now = arrives(segment.param);
    const bool before = p_.gradients.arrived(segment.param);
    if (!now && !before) continue;
    const HostSpan home = gradient_bytes(subgroup, segment);
    const HostSpan add =
        now ? part(staged, segment.begin, segment.numel, bucket.dtype) : HostSpan();
    job.add({add, home, segment.begin, !before});
  }
  status = co_await run(job);
  co_return status;
}

HostSpan Flows::gradient_bytes(SubgroupId subgroup, const Segment& segment) const {
  const BucketLayout& bucket = bucket_of(subgroup);
  if (bucket.in_place) {
    return part(p_.gradients.in_place(segment.param), segment.begin_in_param, segment.numel,
                bucket.dtype);
  }
  return part(p_.swap.gradient_home(subgroup), segment.begin, segment.numel,
              role_dtype(bucket, Role::kGrad, p_.plan.gradient_dtype));
}

Task<Status> Flows::measure(SubgroupId subgroup) {
  const BucketLayout& bucket = bucket_of(subgroup);
  GradientJob job(p_.math, bucket.dtype, bucket.dtype, p_.gradients.chunk_sums(subgroup));
  for (const Segment& segment : p_.plan.layout.subgroups[subgroup].segments) {
    if (!p_.gradients.arrived(segment.param)) continue;
    job.add({{}, gradient_bytes(subgroup, segment), segment.begin, false});
  }
  Status status = co_await run(job);
  p_.gradients.leave(p_.plan.layout.subgroups[subgroup].bucket);
  co_return status;
}

// ---- update

Task<Status> Flows::decide(Turn turn, uint64_t schedule_hash) {
  Step& step = p_.step;
  Status status = co_await p_.gradients.all_reduced();
  ZO_CO_TRY(status);
  const double half = static_cast<double>(schedule_hash >> 32);
  std::vector<double> sums = {p_.gradients.total(), half};
  p_.gradients.forget();
  status = co_await p_.collectives.all_reduce_sum(turn, sums);
  ZO_CO_TRY(status);
  if (sums[1] != half * p_.plan.layout.world_size) {
    co_return Status(Code::kCommError, "the ranks asked for buckets in different orders");
  }
  const double norm = std::sqrt(sums[0]) * step.options.grad_scale;
  double scale = step.options.grad_scale;
  if (step.options.max_grad_norm > 0) {  // as torch.nn.utils.clip_grad_norm_
    const double clip = step.options.max_grad_norm / (norm + 1e-6);
    if (!(clip >= 1)) scale *= clip;  // a NaN stays one, as there
  }
  step.report.grad_norm = norm;
  step.report.skipped = step.options.skip_nonfinite && !std::isfinite(norm);
  step.grad_scale = static_cast<float>(scale);
  for (ParamId param = 0; param < step.active.size(); ++param) {
    if (step.report.skipped || step.active[param] == 0) continue;
    ++step.numbers[param];
    ++step.report.updated_params;
  }
  step.decide();
  co_return Status();
}

Task<Status> Flows::update(SubgroupId subgroup) {
  UpdateBuffer buffer(p_.swap, subgroup);
  Status status = co_await acquire_if_needed(buffer);
  ZO_CO_TRY(status);

  const BucketLayout& bucket = bucket_of(subgroup);
  OperationSet reads("loads of state");
  // A weight in fp32 is the truth, and a split one half of it. Others are rounded from a master.
  if (!bucket.has_master() || bucket.split()) {
    buffer.load(Role::kParam, Urgency::kPrefetch, reads);
  }
  buffer.load(Role::kMaster, Urgency::kPrefetch, reads);
  buffer.load(Role::kExpAvg, Urgency::kPrefetch, reads);
  buffer.load(Role::kExpAvgSq, Urgency::kPrefetch, reads);
  status = co_await reads.all();
  ZO_CO_TRY(status);
  status = co_await p_.step.norm_known();  // the reads did not need it; the arithmetic does
  ZO_CO_TRY(status);

  if (!p_.step.report.skipped) {
    UpdateJob job(p_.optimizer, p_.step.grad_scale);
    add_segments(subgroup, buffer, job);
    status = co_await run(job);
    ZO_CO_TRY(status);

    OperationSet writes("stores of state");
    for (Role role : {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
      buffer.store(role, writes);
    }
    status = co_await writes.all();
    ZO_CO_TRY(status);
  }
  p_.swap.settle(subgroup);
  co_return Status();
}

void Flows::add_segments(SubgroupId subgroup, const UpdateBuffer& buffer, UpdateJob& job) {
  const BucketLayout& bucket = bucket_of(subgroup);
  const SubgroupLayout& layout = p_.plan.layout.subgroups[subgroup];
  if (buffer.travels(Role::kParam) && bucket.has_master() && !bucket.split()) {
    job.refresh(p_.math, part(buffer.bytes(Role::kMaster), 0, layout.numel, DType::kFloat32),
                part(buffer.bytes(Role::kParam), 0, layout.numel, DType::kBFloat16));
  }
  const UpdateViews views(p_.plan.layout, subgroup, buffer);
  for (const Segment& segment : layout.segments) {
    if (p_.step.active[segment.param] == 0) continue;
    UpdateView view = views.of(segment);
    view.grad_dtype =
        bucket.in_place ? bucket.dtype : role_dtype(bucket, Role::kGrad, p_.plan.gradient_dtype);
    view.grad = bucket.in_place ? part(p_.step.in_place[segment.param], segment.begin_in_param,
                                       segment.numel, bucket.dtype)
                                : gradient_bytes(subgroup, segment);
    const uint32_t group = p_.plan.layout.params[segment.param].group;
    job.add({view, p_.step.options.hypers[group], p_.step.numbers[segment.param]});
  }
}

// ---- state between homes and the user

Task<Status> Flows::write_back(BucketId bucket, DeviceSpan memory) {
  const BucketLayout& layout = p_.plan.layout.buckets[bucket];
  const DeviceSpan own = p_.plan.layout.own_shard(bucket, memory);
  OperationSet pieces("pieces to write back");
  for (uint32_t i = 0; i < layout.subgroup_count; ++i) {
    const SubgroupId id = layout.first_subgroup + i;
    p_.flows.spawn(name("write back", id), write_back_piece(id, p_.plan.layout.piece(id, own)),
                   &pieces.add(), {Work::kWriteBack, bucket});
  }
  Status status = co_await pieces.all();
  co_return status;
}

Task<Status> Flows::write_back_piece(SubgroupId subgroup, DeviceSpan from) {
  Status status = co_await p_.swap.settled(subgroup);
  ZO_CO_TRY(status);
  UpdateBuffer buffer(p_.swap, subgroup);
  status = co_await acquire_if_needed(buffer);
  ZO_CO_TRY(status);
  const HostSpan param = buffer.bytes(Role::kParam).first(from.bytes());
  Operation copy("the copy of parameters to the host");
  p_.device.copy_to_host(from, param, copy);
  status = co_await copy;
  ZO_CO_TRY(status);

  const BucketLayout& bucket = bucket_of(subgroup);
  OperationSet writes("stores of parameters");
  if (bucket.has_master()) {
    const UpdateView state = UpdateViews(p_.plan.layout, subgroup, buffer).whole();
    WriteStateJob job(p_.codec, p_.math, Role::kParam, state, param);
    status = co_await run(job);
    ZO_CO_TRY(status);
    buffer.store(Role::kMaster, writes);
  }
  buffer.store(Role::kParam, writes);
  status = co_await writes.all();
  co_return status;
}

Task<Status> Flows::read_state(ParamId param, Role role, HostSpan to) {
  const BucketLayout& bucket = p_.plan.layout.buckets[p_.plan.layout.params[param].bucket];
  const DType dtype = role_dtype(bucket, role, DType::kFloat32);
  OperationSet pieces("pieces of state");
  for (uint32_t i = 0; i < bucket.subgroup_count; ++i) {
    const SubgroupId id = bucket.first_subgroup + i;
    for (const Segment& segment : p_.plan.layout.subgroups[id].segments) {
      if (segment.param != param) continue;
      const HostSpan here = part(to, segment.begin_in_param, segment.numel, dtype);
      p_.flows.spawn(name("read", id), read_segment(id, segment, role, here), &pieces.add());
    }
  }
  Status status = co_await pieces.all();
  co_return status;
}

Task<Status> Flows::read_segment(SubgroupId subgroup, Segment segment, Role role, HostSpan to) {
  Status status = co_await p_.swap.settled(subgroup);
  ZO_CO_TRY(status);
  UpdateBuffer buffer(p_.swap, subgroup);
  status = co_await acquire_if_needed(buffer);
  ZO_CO_TRY(status);
  OperationSet reads("loads of state");
  buffer.load(role, Urgency::kDemand, reads);
  if (role == Role::kMaster && bucket_of(subgroup).split()) {
    buffer.load(Role::kParam, Urgency::kDemand, reads);
  }
  status = co_await reads.all();
  ZO_CO_TRY(status);
  const UpdateViews views(p_.plan.layout, subgroup, buffer);
  ReadStateJob job(p_.codec, role, views.of(segment), to);
  status = co_await run(job);
  co_return status;
}

Task<Status> Flows::write_state(ParamId param, Role role, HostSpan from) {
  const BucketLayout& bucket = p_.plan.layout.buckets[p_.plan.layout.params[param].bucket];
  const DType dtype = role_dtype(bucket, role, DType::kFloat32);
  // One piece after the other: two segments of one subgroup must not read, change and store it at
  // the same time.
  for (uint32_t i = 0; i < bucket.subgroup_count; ++i) {
    const SubgroupId id = bucket.first_subgroup + i;
    for (const Segment& segment : p_.plan.layout.subgroups[id].segments) {
      if (segment.param != param) continue;
      const HostSpan here = part(from, segment.begin_in_param, segment.numel, dtype);
      Status status = co_await write_segment(id, segment, role, here);
      ZO_CO_TRY(status);
    }
  }
  co_return Status();
}

Task<Status> Flows::write_segment(SubgroupId subgroup, Segment segment, Role role, HostSpan from) {
  Status status = co_await p_.swap.settled(subgroup);
  ZO_CO_TRY(status);
  UpdateBuffer buffer(p_.swap, subgroup);
  status = co_await acquire_if_needed(buffer);
  ZO_CO_TRY(status);

  // A parameter and its master change together.
  const BucketLayout& bucket = bucket_of(subgroup);
  const bool weights = role == Role::kParam || role == Role::kMaster;
  const Role twin = role == Role::kParam ? Role::kMaster : Role::kParam;
  const bool has_twin = weights && bucket.has_master();
  OperationSet reads("loads of state");
  buffer.load(role, Urgency::kDemand, reads);
  if (has_twin) buffer.load(twin, Urgency::kDemand, reads);
  status = co_await reads.all();
  ZO_CO_TRY(status);

  UpdateView state = UpdateViews(p_.plan.layout, subgroup, buffer).of(segment);
  // What the user keeps in place changes only where it is one half of the master.
  if (bucket.in_place && role == Role::kMaster && !bucket.split()) state.param = {};
  WriteStateJob job(p_.codec, p_.math, role, state, from);
  status = co_await run(job);
  ZO_CO_TRY(status);
  OperationSet writes("stores of state");
  buffer.store(role, writes);
  if (has_twin) buffer.store(twin, writes);
  status = co_await writes.all();
  co_return status;
}

}  // namespace zoffload
