#include "core/open.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "comm/in_process.h"
#include "core/open_storage.h"
#include "core/path_settings.h"
#include "cuda/host_device.h"
#include "cuda/huge_pages.h"
#include "optim/gradient_math.h"
#include "optim/optimizers.h"
#include "optim/state_codec.h"
#include "optim/tbb_workers.h"
#include "tiers/hbm_tier.h"
#include "tiers/host_tier.h"

namespace zoffload {

namespace {

class SteadyClock final : public Clock {
 public:
  uint64_t now_ns() const override {
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(since_start).count());
  }
  void doze(uint64_t ns_max) override {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns_max));
  }
};

// Everything one rank owns. Members are destroyed from the last to the first: the engine before
// what it runs on.
class LocalWorld final : public EngineWorld {
 public:
  static Result<std::unique_ptr<EngineWorld>> make(const OpenRequest& request);
  Engine& engine() override { return *engine_; }

 private:
  Status open_memory(const Plan& plan);

  SteadyClock clock_;
  HostDevice device_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<TbbWorkers> workers_;
  std::unique_ptr<Optimizer> optimizer_;
  HighwayGradientMath math_;
  HighwayStateCodec codec_;
  HostSpan arena_;  // host homes, then slots
  HostSpan slots_;  // the arena's part for slots and gradients
  DeviceSpan hbm_;  // HBM homes, then gradient slots
  std::unique_ptr<HbmTier> hbm_tier_;
  std::unique_ptr<HostTier> host_tier_;
  std::unique_ptr<LocalStorage> storage_;  // null without anything on NVMe
  std::unique_ptr<Engine> engine_;
};

Status LocalWorld::open_memory(const Plan& plan) {
  const uint64_t host_home_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHost)];
  const uint64_t hbm_home_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHbm)];
  if (plan.arena_bytes() > 0) {
    ZO_ASSIGN_OR_RETURN(arena_, device_.allocate_pinned(plan.arena_bytes()));
    const std::string warning = huge_page_warning(arena_);
    if (!warning.empty()) spdlog::warn("{}", warning);
  }
  if (plan.device_bytes() > 0) {
    ZO_ASSIGN_OR_RETURN(hbm_, device_.allocate_hbm(plan.device_bytes()));
  }
  host_tier_ = std::make_unique<HostTier>(arena_.first(host_home_bytes));
  hbm_tier_ = std::make_unique<HbmTier>(device_, hbm_.subspan(0, hbm_home_bytes));
  slots_ = arena_.subspan(host_home_bytes);
  return Status();
}

Result<std::unique_ptr<EngineWorld>> LocalWorld::make(const OpenRequest& request) {
  if (request.plan.world_size != 1) {
    return Status(Code::kUnsupported, "world_size is " + std::to_string(request.plan.world_size) +
                                          ": this version trains with one rank");
  }
  auto world = std::make_unique<LocalWorld>();
  LocalWorld& w = *world;
  ZO_ASSIGN_OR_RETURN(w.optimizer_, make_optimizer(request.optimizer_name));
  ZO_ASSIGN_OR_RETURN(Plan plan, make_plan(request.model, request.plan));
  const uint64_t nvme_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kNvme)];
  if (nvme_bytes > 0) {
    const uint64_t extent_bytes_max =
        round_up(plan.layout.subgroup_numel * sizeof(float), kPageBytes);
    ZO_ASSIGN_OR_RETURN(w.storage_, LocalStorage::open(request, nvme_bytes, extent_bytes_max));
  }
  ZO_TRY(w.open_memory(plan));
  w.workers_ = std::make_unique<TbbWorkers>(request.plan.workers);
  if (nvme_bytes > 0) {
    const Status made = w.storage_->make_tier(w.arena_, w.slots_, w.clock_, *w.workers_);
    // A drive that does not answer may still own the memory: a leak is the lesser evil.
    if (made.code() == Code::kTimeout) static_cast<void>(world.release());
    ZO_TRY(made);
  }
  w.communicator_ = InProcessGroup(1).rank(0, w.device_);

  EnginePorts ports{w.clock_,      w.device_, *w.communicator_, *w.workers_,
                    *w.optimizer_, w.math_,   w.codec_};
  ports.tiers = {w.hbm_tier_.get(), w.host_tier_.get(),
                 w.storage_ == nullptr ? nullptr : w.storage_->tier()};
  ports.slots = w.slots_;
  const uint64_t hbm_home_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHbm)];
  ports.gradients = w.hbm_.subspan(hbm_home_bytes, plan.gradient.total_bytes());
  EngineOptions options = request.engine;
  if (w.storage_ != nullptr) options.rates = w.storage_->rates();
  ZO_ASSIGN_OR_RETURN(w.engine_, Engine::open(ports, std::move(plan), options));
  return std::unique_ptr<EngineWorld>(std::move(world));
}

constexpr uint64_t kInFlightBytesMax = uint64_t{256} << 20;  // of all paths
constexpr uint64_t kSubgroupBytesMax = uint64_t{64} << 20;   // where nobody asked for a size ...
constexpr uint64_t kSlotBytesMax = uint64_t{512} << 20;      // ... and of all slots then

}  // namespace

PlanRequest resolved_plan(const OpenRequest& request) {
  PlanRequest plan = request.plan;
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  plan.workers = request.threads == 0 ? cores : request.threads;
  const auto optimizer = make_optimizer(request.optimizer_name);
  if (optimizer.ok()) plan.moments = (*optimizer)->moments();  // else open_engine() says so
  const Result<Profile> profile = profile_of(request);         // and so here
  const auto paths = path_settings(request, profile.ok() ? *profile : Profile());
  if (plan.optimizer.nvme > 0) {
    for (const PathSettings& path : paths) plan.in_flight_bytes += path.in_flight_bytes();
    plan.in_flight_bytes = std::min(plan.in_flight_bytes, kInFlightBytesMax);
  }
  if (plan.subgroup_bytes == 0) {
    uint64_t block_bytes_max = 0;
    for (const PathSettings& path : paths) {
      block_bytes_max = std::max(block_bytes_max, path.block_bytes);
    }
    // At least a block of each of master and moments.
    plan.subgroup_bytes =
        std::clamp(4 * block_bytes_max, PlanRequest().subgroup_bytes, kSubgroupBytesMax);
    plan.slot_bytes_max = kSlotBytesMax;
  }
  return plan;
}

Result<std::unique_ptr<ControlThread>> open_engine(OpenRequest request) {
  request.plan = resolved_plan(request);
  return ControlThread::start([request = std::move(request)] { return LocalWorld::make(request); });
}

}  // namespace zoffload
