// An engine per rank on simulated ports, and for each a user who does as a training loop does:
// frees and allocates bucket memory when told, leases, hands in gradients, steps. One thread, one
// clock, no chance: whatever fails, a test made it fail.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bf16.h"
#include "core/engine/engine.h"
#include "core/sim/sim_clock.h"
#include "core/sim/sim_communicator.h"
#include "core/sim/sim_device.h"
#include "core/sim/sim_disk.h"
#include "core/sim/sim_workers.h"
#include "optim/gradient_math.h"
#include "optim/optimizers.h"
#include "optim/state_codec.h"
#include "tiers/hbm_tier.h"
#include "tiers/host_tier.h"
#include "tiers/nvme_tier.h"

namespace zoffload {

struct RigOptions {
  std::vector<BucketSpec> model;
  PlanRequest plan;
  uint64_t stall_timeout_ns = 1'000'000'000;
  SimDeviceOptions device = {};
  Trace* trace = nullptr;  // outlives the rig
};

// One rank. Members are destroyed from the last to the first.
class RigRank {
 public:
  RigRank(const RigOptions& options, uint32_t rank, SimClock& clock, Communicator& communicator)
      : device_(clock, options.device, 1, options.trace),
        workers_(clock, SimWorkersOptions{}, 2, options.trace),
        disk_(clock, SimDiskOptions{}, SimDiskFaults{}, 3, options.trace) {
    PlanRequest request = options.plan;
    request.rank = rank;
    Plan plan = std::move(make_plan(options.model, request).value());
    const auto bytes = [&](TierKind tier) { return plan.home_bytes[static_cast<size_t>(tier)]; };
    const HostSpan memory = device_.allocate_pinned(plan.arena_bytes() + 16 * kPageBytes).value();
    const HostSpan arena = memory.first(plan.arena_bytes());
    const DeviceSpan hbm = device_.allocate_hbm(plan.device_bytes() + kPageBytes).value();
    host_ = std::make_unique<HostTier>(arena.first(bytes(TierKind::kHost)));
    hbm_ = std::make_unique<HbmTier>(device_, hbm.subspan(0, bytes(TierKind::kHbm)));
    if (bytes(TierKind::kNvme) > 0) {
      NvmeOptions nvme_options;
      nvme_options.block_bytes = 16 * kPageBytes;
      const std::vector<NvmePath> paths = {{&disk_, "state", 1.0, "/disk"}};
      nvme_ = std::move(NvmeTier::open(paths, bytes(TierKind::kNvme), memory.last(16 * kPageBytes),
                                       clock, nvme_options, {}, &workers_)
                            .value());
    }
    EnginePorts ports{clock, device_, communicator, workers_, *optimizer_, math_, codec_};
    ports.tiers = {hbm_.get(), host_.get(), nvme_.get()};
    ports.slots =
        arena.subspan(bytes(TierKind::kHost), plan.arena_bytes() - bytes(TierKind::kHost));
    ports.gradients = hbm.subspan(bytes(TierKind::kHbm), plan.gradient.total_bytes());
    EngineOptions engine_options;
    engine_options.stall_timeout_ns = options.stall_timeout_ns;
    engine_ = std::move(Engine::open(ports, std::move(plan), engine_options).value());
  }

  Engine& engine() { return *engine_; }
  SimDevice& device() { return device_; }
  SimIoQueue& disk() { return disk_; }
  const Layout& layout() const { return engine_->plan().layout; }

  // ---- The user's memory of a gathered bucket

  bool has_memory(BucketId bucket) const { return memory_.contains(bucket); }
  HostSpan memory(BucketId bucket) { return HostSpan(memory_.at(bucket)); }
  DeviceSpan allocate(BucketId bucket) {
    if (has_memory(bucket)) free(bucket);
    auto& memory = memory_[bucket];
    memory.assign(layout().buckets[bucket].bytes(), std::byte{0xa5});
    const DeviceSpan span(reinterpret_cast<uintptr_t>(memory.data()), memory.size());
    device_.adopt(span);
    return span;
  }
  void free(BucketId bucket) {
    device_.disown(DeviceSpan(reinterpret_cast<uintptr_t>(memory_.at(bucket).data()), 1));
    memory_.erase(bucket);
  }
  // One parameter in the gathered bucket.
  template <typename T>
  std::span<T> values(ParamId param) {
    const ParamLayout& p = layout().params[param];
    return elements<T>(memory(p.bucket)).subspan(p.begin, p.numel);
  }

  // ---- The user's verbs

  Task<Status> ask(BucketId bucket) {  // prepares and offers, does not wait
    auto orders = co_await engine_->prepare(bucket);
    ZO_CO_TRY(orders.status());
    for (BucketId other : orders->drop) free(other);
    for (BucketId other : orders->offer) ZO_CO_TRY(engine_->offer(other, allocate(other), 0));
    co_return Status();
  }
  Task<Status> hold(BucketId bucket) {
    Status status = co_await ask(bucket);
    ZO_CO_TRY(status);
    status = co_await engine_->lease(bucket);
    co_return status;
  }
  Status let_go(BucketId bucket) {
    ZO_ASSIGN_OR_RETURN(const bool free_now, engine_->release(bucket));
    if (free_now) free(bucket);
    return Status();
  }
  Task<Status> pass(std::vector<BucketId> accesses, uint64_t signature = 1) {
    engine_->begin_pass(signature);
    for (BucketId bucket : accesses) {
      Status status = co_await hold(bucket);
      ZO_CO_TRY(status);
      ZO_CO_TRY(let_go(bucket));
    }
    co_return Status();
  }
  Task<Status> drop_all() {
    auto dropped = co_await engine_->release_all();
    ZO_CO_TRY(dropped.status());
    for (BucketId bucket : *dropped) free(bucket);
    co_return Status();
  }
  // Every element of these parameters, all of one bucket, gets this gradient.
  Task<Status> give(BucketId bucket, float gradient, std::vector<ParamId> params) {
    auto slot = co_await engine_->acquire_gradients();
    ZO_CO_TRY(slot.status());
    const HostSpan memory = device_.memory(engine_->gradient_memory(*slot, bucket));
    for (ParamId id : params) {
      const ParamLayout& p = layout().params[id];
      for (uint64_t i = p.begin; i < p.begin + p.numel; ++i) {
        if (layout().buckets[bucket].dtype == DType::kFloat32) {
          elements<float>(memory)[i] = gradient;
        } else {
          elements<uint16_t>(memory)[i] = bf16_from_float(gradient);
        }
      }
    }
    co_return engine_->reduce(bucket, *slot, params, 0);
  }
  Task<Status> step(double max_grad_norm, StepReport& report) {
    StepOptions options;
    options.hypers = {Hyper{0.1, 0.9, 0.99, 1e-8, 0.01}};
    options.max_grad_norm = max_grad_norm;
    auto result = co_await engine_->step(options);
    ZO_CO_TRY(result.status());
    report = *result;
    co_return Status();
  }

 private:
  SimDevice device_;
  SimWorkers workers_;
  SimIoQueue disk_;
  const std::unique_ptr<Optimizer> optimizer_ = std::move(*make_optimizer("scalar_adamw"));
  ScalarGradientMath math_;
  ScalarStateCodec codec_;
  std::unique_ptr<HbmTier> hbm_;
  std::unique_ptr<HostTier> host_;
  std::unique_ptr<NvmeTier> nvme_;
  std::map<BucketId, std::vector<std::byte>> memory_;
  std::unique_ptr<Engine> engine_;
};

// A world of ranks.
class Rig {
 public:
  explicit Rig(const RigOptions& options)
      : stall_timeout_ns_(options.stall_timeout_ns),
        group_(clock_, options.plan.world_size, SimGroupOptions{}, 1, nullptr) {
    for (uint32_t r = 0; r < options.plan.world_size; ++r) {
      ranks_.push_back(std::make_unique<RigRank>(options, r, clock_, group_.rank(r)));
    }
  }
  ~Rig() {
    for (auto& rank : ranks_) rank->engine().drain();
    for (auto& rank : ranks_) drive([&rank] { return rank->engine().idle(); });
    ZO_CHECK(!group_.mismatch());
  }

  RigRank& operator[](uint32_t rank) { return *ranks_[rank]; }
  SimClock& clock() { return clock_; }

  // What the user of one rank runs beside the others: like ControlThread, the verb's own error is
  // not the engine's.
  struct Run {
    Status status;
    Completion done;
  };
  Run& start(uint32_t rank, Task<Status> task) {
    Run& run = *runs_.emplace_back(std::make_unique<Run>());
    ranks_[rank]->engine().spawn("user", keep(std::move(task), run.status), &run.done);
    return run;
  }
  Status finish(Run& run) {
    drive([&run] { return run.done.done(); });
    return run.status;
  }
  Status run(Task<Status> task) { return finish(start(0, std::move(task))); }

  // Polls every rank until `finished`, letting time pass when nothing moves. A hang is the end of
  // the test.
  template <typename Finished>
  void drive(Finished finished) {
    uint32_t round_count = 0;
    while (!finished()) {
      ZO_CHECK(++round_count < 1'000'000);
      if (poll() == 0) clock_.doze(stall_timeout_ns_);
    }
  }
  uint32_t poll() {
    uint32_t moved = 0;
    for (auto& rank : ranks_) moved += rank->engine().poll();
    return moved;
  }

 private:
  static Task<Status> keep(Task<Status> task, Status& kept) {
    Status status = co_await task;
    kept = status;
    co_return Status();
  }

  const uint64_t stall_timeout_ns_;
  SimClock clock_;
  SimGroup group_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<std::unique_ptr<RigRank>> ranks_;
};

}  // namespace zoffload
