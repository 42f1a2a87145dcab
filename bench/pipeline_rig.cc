#include "bench/pipeline_rig.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "bench/run_jobs.h"
#include "bench/update_rig.h"
#include "tiers/nvme_tier.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kBucketNumel = uint64_t{16} << 20;

Task<Status> present(Engine& engine, const std::vector<Engine::InPlaceGradient>& gradients) {
  co_return engine.present(gradients, false);
}

Task<Status> step_and_settle(Engine& engine) {
  StepOptions options;
  options.hypers = {Hyper{}};
  zoffload::Result<StepReport> report = co_await engine.step(options);
  if (!report.ok()) co_return report.status();
  Status status = co_await engine.settle();
  co_return status;
}

Task<Status> read_stats(Engine& engine, std::shared_ptr<EngineStats> stats) {
  *stats = engine.stats();
  co_return Status();
}

}  // namespace

std::vector<BucketSpec> buckets_of(const ModelShape& shape, DType dtype, StateFormat format) {
  std::vector<BucketSpec> buckets;
  uint64_t filled = 0;
  for (const auto& [name, numel] : shape.params) {
    if (buckets.empty() || filled + numel > kBucketNumel) {
      BucketSpec bucket;
      bucket.name = "bucket " + std::to_string(buckets.size());
      bucket.dtype = dtype;
      bucket.format = format;
      bucket.in_place = true;
      buckets.push_back(std::move(bucket));
      filled = 0;
    }
    ParamSpec param;
    param.name = name;
    param.numel = numel;
    buckets.back().params.push_back(std::move(param));
    filled += numel;
  }
  return buckets;
}

uint64_t UserModel::memory_bytes(const ModelShape& shape, DType dtype) {
  uint64_t bytes = 0;
  for (const auto& param : shape.params) {
    bytes += 2 * round_up(param.second * dtype_bytes(dtype), kPageBytes);
  }
  return bytes;
}

zoffload::Result<std::unique_ptr<UserModel>> UserModel::make(const ModelShape& shape, DType dtype,
                                                             StateFormat format, uint64_t seed) {
  auto model = std::make_unique<UserModel>();
  model->buckets_ = buckets_of(shape, dtype, format);
  ZO_ASSIGN_OR_RETURN(HostSpan rest, model->memory_.allocate_pinned(memory_bytes(shape, dtype)));
  const auto take = [&rest, dtype](uint64_t numel) {
    const HostSpan part = rest.first(numel * dtype_bytes(dtype));
    const uint64_t padded = round_up(part.size(), kPageBytes);
    rest = rest.subspan(std::min<uint64_t>(padded, rest.size()));
    return part;
  };
  ParamId id = 0;
  for (BucketSpec& bucket : model->buckets_) {
    for (ParamSpec& param : bucket.params) {
      param.in_place = take(param.numel);
      fill_random(param.in_place, dtype, seed + 2 * id);
      const HostSpan gradient = take(param.numel);
      fill_random(gradient, dtype, seed + 2 * id + 1);
      model->gradients_.push_back({id, gradient});
      model->numel_ += param.numel;
      ++id;
    }
  }
  return model;
}

zoffload::Result<PipelineCost> cost_of(const OpenRequest& request) {
  PipelineCost cost;
  ZO_ASSIGN_OR_RETURN(cost.plan, make_plan(request.model, resolved_plan(request)));
  const uint64_t nvme_bytes = cost.plan.home_bytes[static_cast<size_t>(TierKind::kNvme)];
  if (nvme_bytes == 0) return cost;

  NvmeOptions options;
  options.extent_bytes_max = round_up(cost.plan.layout.subgroup_numel * sizeof(float), kPageBytes);
  const std::vector<NvmePath> paths(std::max<size_t>(request.nvme_paths.size(), 1));
  const auto files = NvmeTier::file_bytes(paths, nvme_bytes, options);
  cost.file_bytes = std::accumulate(files.begin(), files.end(), uint64_t{0});
  for (SubgroupId id = 0; id < cost.plan.layout.subgroups.size(); ++id) {
    if (cost.plan.homes[id].state != TierKind::kNvme) continue;
    const SubgroupLayout& subgroup = cost.plan.layout.subgroups[id];
    const BucketLayout& bucket = cost.plan.layout.buckets[subgroup.bucket];
    for (const Role role : {Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
      if (!has_role(bucket, role)) continue;
      const uint64_t bytes = round_up(role_bytes(bucket, role, subgroup.numel), kPageBytes);
      cost.step_bytes += bytes;
      // A parameter's master is written piece by piece, and each piece rewrites the extent.
      if (role == Role::kMaster) cost.prepare_bytes += subgroup.segments.size() * bytes;
    }
  }
  return cost;
}

zoffload::Result<std::unique_ptr<PipelineRig>> PipelineRig::open(const OpenRequest& request,
                                                                 const UserModel& model) {
  std::unique_ptr<PipelineRig> rig(new PipelineRig(model));
  OpenRequest own = request;
  own.model = model.buckets();
  ZO_ASSIGN_OR_RETURN(rig->control_, open_engine(std::move(own)));
  return rig;
}

Status PipelineRig::call(const char* name, ControlThread::Verb verb) {
  return control_->call(name, std::move(verb), [] { return true; });
}

zoffload::Result<EngineStats> PipelineRig::stats() {
  const auto stats = std::make_shared<EngineStats>();
  ZO_TRY(call("stats", [stats](Engine& engine) { return read_stats(engine, stats); }));
  return *stats;
}

Status PipelineRig::prepare() {
  ParamId id = 0;
  for (const BucketSpec& bucket : model_.buckets()) {
    for (const ParamSpec& param : bucket.params) {
      if (bucket.dtype != DType::kFloat32) {
        const HostSpan from = param.in_place;
        ZO_TRY(call("write_state", [id, from](Engine& engine) {
          return engine.write_state(id, Role::kParam, from);
        }));
      }
      ++id;
    }
  }
  return Status();
}

zoffload::Result<StepSample> PipelineRig::step() {
  ZO_ASSIGN_OR_RETURN(const EngineStats before, stats());
  StepSample sample;
  const double cpu_begin_s = cpu_now_s();
  const double begin_s = now_s();
  ZO_TRY(call("present", [this](Engine& engine) { return present(engine, model_.gradients()); }));
  ZO_TRY(call("step", [](Engine& engine) { return step_and_settle(engine); }));
  sample.seconds = now_s() - begin_s;
  sample.cpu_seconds = cpu_now_s() - cpu_begin_s;
  ZO_ASSIGN_OR_RETURN(const EngineStats after, stats());
  for (size_t tier = 0; tier < kTierCount; ++tier) {
    sample.loaded_bytes[tier] = after.loaded_bytes[tier] - before.loaded_bytes[tier];
    sample.stored_bytes[tier] = after.stored_bytes[tier] - before.stored_bytes[tier];
  }
  return sample;
}

}  // namespace zoffload::bench
