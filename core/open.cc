#include "core/open.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "aio/open_queue.h"
#include "aio/probe.h"
#include "comm/in_process.h"
#include "core/base/format.h"
#include "cuda/host_device.h"
#include "optim/gradient_math.h"
#include "optim/optimizers.h"
#include "optim/tbb_workers.h"
#include "tiers/hbm_tier.h"
#include "tiers/host_tier.h"
#include "tiers/nvme_tier.h"
#include "tiers/store_folder.h"

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

Result<IoEngine> io_engine_named(const std::string& name) {
  if (name == "auto") return IoEngine::kAuto;
  if (name == "uring") return IoEngine::kUring;
  if (name == "threads") return IoEngine::kThreads;
  return Status(Code::kInvalidArgument,
                "io_engine is '" + name + "'; it may be auto, uring or threads");
}

// Everything one rank owns. Members are destroyed from the last to the first: the engine before
// what it runs on.
class LocalWorld final : public EngineWorld {
 public:
  static Result<std::unique_ptr<EngineWorld>> make(const OpenRequest& request);
  Engine& engine() override { return *engine_; }

 private:
  Status open_memory(const Plan& plan);
  Status open_folders(const OpenRequest& request, const Plan& plan);
  Status open_nvme(const OpenRequest& request, uint64_t capacity_bytes);

  SteadyClock clock_;
  HostDevice device_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<TbbWorkers> workers_;
  std::unique_ptr<Optimizer> optimizer_;
  HighwayGradientMath math_;
  HostSpan arena_;  // host homes, then slots
  HostSpan slots_;  // the arena's part for slots and gradients
  DeviceSpan hbm_;  // HBM homes, then gradient slots
  std::vector<std::unique_ptr<StoreFolder>> folders_;
  std::vector<NvmePath> nvme_paths_;
  NvmeOptions nvme_options_;
  std::vector<std::unique_ptr<IoQueue>> queues_;
  std::unique_ptr<HbmTier> hbm_tier_;
  std::unique_ptr<HostTier> host_tier_;
  std::unique_ptr<NvmeTier> nvme_tier_;
  std::unique_ptr<Engine> engine_;
};

Status LocalWorld::open_memory(const Plan& plan) {
  const uint64_t host_home_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHost)];
  const uint64_t hbm_home_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHbm)];
  if (plan.arena_bytes() > 0) {
    ZO_ASSIGN_OR_RETURN(arena_, device_.allocate_pinned(plan.arena_bytes()));
  }
  if (plan.device_bytes() > 0) {
    ZO_ASSIGN_OR_RETURN(hbm_, device_.allocate_hbm(plan.device_bytes()));
  }
  host_tier_ = std::make_unique<HostTier>(arena_.first(host_home_bytes));
  hbm_tier_ = std::make_unique<HbmTier>(device_, hbm_.subspan(0, hbm_home_bytes));
  slots_ = arena_.subspan(host_home_bytes);
  return Status();
}

// Before any memory is taken: are the paths there, and is there room?
Status LocalWorld::open_folders(const OpenRequest& request, const Plan& plan) {
  const uint64_t capacity_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kNvme)];
  if (capacity_bytes == 0) return Status();
  if (request.nvme_paths.empty()) {
    return Status(Code::kInvalidArgument, "nvme_path: it is missing, and the plan puts " +
                                              format_bytes(capacity_bytes) +
                                              " on NVMe: give a folder on a local drive");
  }
  nvme_options_.verify = request.verify_reads;
  nvme_options_.extent_bytes_max = round_up(plan.layout.subgroup_numel * sizeof(float), kPageBytes);
  nvme_paths_.resize(request.nvme_paths.size());
  const std::vector<uint64_t> file_bytes =
      NvmeTier::file_bytes(nvme_paths_, capacity_bytes, nvme_options_);
  for (size_t i = 0; i < nvme_paths_.size(); ++i) {
    const std::string& path = request.nvme_paths[i];
    const IoProbe probe = probe_path(path);
    ZO_TRY(probe.status.within("nvme_path"));
    if (probe.is_memory) {
      spdlog::warn("nvme_path {} is on {}, which is memory and not a disk", path,
                   probe.file_system);
    }
    ZO_ASSIGN_OR_RETURN(auto folder, StoreFolder::create(path));
    ZO_TRY(StoreFolder::check_free_bytes(path, file_bytes[i]));
    nvme_paths_[i].file = folder->file("state");
    nvme_paths_[i].name = path;
    folders_.push_back(std::move(folder));
  }
  return Status();
}

Status LocalWorld::open_nvme(const OpenRequest& request, uint64_t capacity_bytes) {
  if (capacity_bytes == 0) return Status();
  ZO_ASSIGN_OR_RETURN(const IoEngine engine, io_engine_named(request.io_engine));
  IoQueueOptions queue_options;
  queue_options.depth = request.io_queue_depth;
  for (NvmePath& path : nvme_paths_) {
    const bool first = queues_.empty();  // what is said of one queue holds for all
    ZO_ASSIGN_OR_RETURN(ChosenQueue chosen, open_queue(engine, queue_options));
    if (first && engine == IoEngine::kAuto && std::string(chosen.queue->name()) != "io_uring") {
      spdlog::warn("{}", chosen.why);
    }
    ZO_ASSIGN_OR_RETURN(const std::string unregistered, chosen.queue->register_arena(arena_));
    if (first && !unregistered.empty()) spdlog::warn("{}", unregistered);
    path.queue = chosen.queue.get();
    queues_.push_back(std::move(chosen.queue));
  }
  auto told = std::chrono::steady_clock::now();
  const auto progress = [&told](uint64_t done_bytes, uint64_t total_bytes) {
    const auto now = std::chrono::steady_clock::now();
    if (now - told < std::chrono::seconds(2)) return;
    told = now;
    spdlog::info("writing the swap files once, {} of {}", format_bytes(done_bytes),
                 format_bytes(total_bytes));
  };
  nvme_options_.block_bytes =
      std::min<uint64_t>(request.io_block_bytes, slots_.size() / kPageBytes * kPageBytes);
  ZO_ASSIGN_OR_RETURN(nvme_tier_, NvmeTier::open(nvme_paths_, capacity_bytes, slots_, clock_,
                                                 nvme_options_, progress));
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
  ZO_TRY(w.open_folders(request, plan));
  ZO_TRY(w.open_memory(plan));
  ZO_TRY(w.open_nvme(request, plan.home_bytes[static_cast<size_t>(TierKind::kNvme)]));
  w.communicator_ = InProcessGroup(1).rank(0, w.device_);
  w.workers_ = std::make_unique<TbbWorkers>(request.plan.workers);

  EnginePorts ports{w.clock_, w.device_, *w.communicator_, *w.workers_, *w.optimizer_, w.math_};
  ports.tiers = {w.hbm_tier_.get(), w.host_tier_.get(), w.nvme_tier_.get()};
  ports.slots = w.slots_;
  const uint64_t hbm_home_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHbm)];
  ports.gradients = w.hbm_.subspan(hbm_home_bytes, plan.gradient.total_bytes());
  ZO_ASSIGN_OR_RETURN(w.engine_, Engine::open(ports, std::move(plan), request.engine));
  return std::unique_ptr<EngineWorld>(std::move(world));
}

}  // namespace

Result<std::unique_ptr<ControlThread>> open_engine(OpenRequest request) {
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  request.plan.workers = request.threads == 0 ? cores : request.threads;
  return ControlThread::start([request = std::move(request)] { return LocalWorld::make(request); });
}

}  // namespace zoffload
