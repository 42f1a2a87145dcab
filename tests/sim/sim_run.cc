#include "tests/sim/sim_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "core/engine/engine.h"
#include "core/sim/random.h"
#include "core/sim/sim_clock.h"
#include "core/sim/sim_communicator.h"
#include "core/sim/sim_device.h"
#include "core/sim/sim_workers.h"
#include "core/sim/trace.h"
#include "optim/gradient_math.h"
#include "optim/optimizers.h"
#include "optim/state_codec.h"
#include "tiers/hbm_tier.h"
#include "tiers/host_tier.h"
#include "tiers/nvme_tier.h"

namespace zoffload::sim_test {

namespace {

constexpr uint64_t kHangNs = 3'600'000'000'000;  // of virtual time
constexpr uint64_t kStallNs = 2'000'000'000;

SimDiskFaults disk_faults(const Scenario& s, Random random) {
  SimDiskFaults faults;
  if (!s.faults) return faults;
  faults.reorder = 0.3;
  faults.slow = 0.02;
  faults.short_transfer = 0.05;  // no error: the tier carries on
  const double rate = 0.005 * static_cast<double>(1 + random.below(4));
  switch (random.below(5)) {
    case 0: faults.eio = rate; break;
    case 1: faults.enospc = rate; break;
    case 2: faults.bit_flip = rate; break;
    case 3: faults.never = rate; break;
    default: break;
  }
  return faults;
}

// Those that may end a run; short, slow and reordered transfers may not.
uint64_t count_hard_faults(const SimDiskFaultCounts& c) {
  return c.eio + c.enospc + c.bit_flip + c.never;
}
uint64_t count_soft_faults(const SimDiskFaultCounts& c) {
  return c.short_transfer + c.slow + c.reorder;
}

// One rank: what it owns, and its user. Members are destroyed from the last to the first.
class Rank {
 public:
  Rank(const Scenario& s, uint32_t rank, SimClock& clock, SimGroup& group, Trace* trace)
      : s_(s),
        rank_(rank),
        random_(Random(s.seed).fork(100 + rank)),
        clock_(clock),
        group_(group),
        device_(clock, device_options(), random_.next(), trace, "device" + std::to_string(rank)),
        workers_(clock, worker_options(), random_.next(), trace, "workers" + std::to_string(rank)),
        optimizer_(std::move(make_optimizer("adamw").value())) {
    for (int i = 0; i < 2; ++i) {
      disks_.push_back(std::make_unique<SimIoQueue>(clock, SimDiskOptions{}, SimDiskFaults{},
                                                    random_.next(), trace,
                                                    "disk" + std::to_string(rank * 2 + i)));
    }
  }

  Status open() {
    PlanRequest request = s_.plan;
    request.rank = rank_;
    request.world_size = s_.world_size;
    ZO_ASSIGN_OR_RETURN(Plan plan, make_plan(s_.model, request));
    const auto home_bytes = [&](TierKind tier) {
      return plan.home_bytes[static_cast<size_t>(tier)];
    };
    constexpr uint64_t kBlockBytes = 64 << 10;
    const uint64_t arena_bytes = round_up(plan.arena_bytes(), kPageBytes);
    ZO_ASSIGN_OR_RETURN(const HostSpan arena, device_.allocate_pinned(arena_bytes + kBlockBytes));
    ZO_ASSIGN_OR_RETURN(const DeviceSpan hbm,
                        device_.allocate_hbm(std::max<uint64_t>(plan.device_bytes(), kPageBytes)));
    const HostSpan slots = arena.first(plan.arena_bytes()).subspan(home_bytes(TierKind::kHost));
    host_ = std::make_unique<HostTier>(arena.first(home_bytes(TierKind::kHost)));
    hbm_ = std::make_unique<HbmTier>(device_, hbm.subspan(0, home_bytes(TierKind::kHbm)));
    if (home_bytes(TierKind::kNvme) > 0) {
      NvmeOptions options;
      options.verify = s_.verify;
      options.block_bytes = kBlockBytes;
      std::vector<NvmePath> paths = {{disks_[0].get(), "a", 2.0, "/a"},
                                     {disks_[1].get(), "b", 1.0, "/b"}};
      ZO_ASSIGN_OR_RETURN(
          nvme_, NvmeTier::open(paths, home_bytes(TierKind::kNvme), arena.last(kBlockBytes), clock_,
                                options, {}, &workers_));
    }
    EnginePorts ports{clock_, device_, group_.rank(rank_), workers_, *optimizer_, math_, codec_};
    ports.tiers = {hbm_.get(), host_.get(), nvme_.get()};
    ports.slots = slots;
    ports.gradients = hbm.subspan(home_bytes(TierKind::kHbm), plan.gradient.total_bytes());
    EngineOptions options;
    options.stall_timeout_ns = kStallNs;
    ZO_ASSIGN_OR_RETURN(engine_, Engine::open(ports, std::move(plan), options));
    for (auto& disk : disks_) disk->set_faults(disk_faults(s_, Random(s_.seed).fork(7)));
    return Status();
  }

  void start() { engine_->spawn("user", user(), &done_); }
  bool done() const { return done_.done(); }
  Engine& engine() { return *engine_; }
  const Status& status() const { return status_; }
  const std::vector<std::vector<std::byte>>& weights() const { return weights_; }
  // Whether the books agree with the tiers' own counters, and the steps' reports with the books.
  // REQUIRES: idle.
  std::string wrong_books() const {
    const Attribution& books = engine_->attribution();
    const Spent spent = books.spent();
    const EngineStats stats = engine_->stats();
    const auto sum = [](const Spent::ByRole& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
    };
    for (size_t tier = 0; tier < kTierCount; ++tier) {
      if (sum(spent.loaded_bytes[tier]) != stats.loaded_bytes[tier]) return "loaded bytes";
      if (sum(spent.stored_bytes[tier]) != stats.stored_bytes[tier]) return "stored bytes";
    }
    if (spent.stalled_ns() > spent.wall_ns) return "more stalls than time";
    for (const ResourceSpent& resource : spent.resources) {
      if (resource.busy_ns > spent.wall_ns) return "busier than always";
    }
    if (spent.worker_ns > spent.wall_ns * workers_.count()) return "more work than workers";
    if (books.in_flight_count() != 0) return "something is still in flight";
    if (!status_.ok()) return "";
    return same(reported_, at_end_) ? "" : "the steps' reports do not add up";
  }
  uint64_t hard_fault_count() const {
    uint64_t count = device_.error_count() + workers_.error_count();
    for (const auto& disk : disks_) count += count_hard_faults(disk->fault_counts());
    return count;
  }
  uint64_t soft_fault_count() const {
    uint64_t count = 0;
    for (const auto& disk : disks_) count += count_soft_faults(disk->fault_counts());
    return count;
  }

 private:
  SimDeviceOptions device_options() const {
    SimDeviceOptions options;
    options.host_visible = s_.seed % 2 == 0;
    options.any_order = true;
    if (s_.faults && s_.seed % 7 == 3) options.error = 0.0005;
    return options;
  }
  SimWorkersOptions worker_options() const {
    SimWorkersOptions options;
    options.count = s_.plan.workers;
    if (s_.faults && s_.seed % 7 == 5) options.error = 0.0005;
    return options;
  }

  static bool same(const Spent& a, const Spent& b) {
    bool equal = a.wall_ns == b.wall_ns && a.step_ns == b.step_ns && a.worker_ns == b.worker_ns;
    equal &= a.stall_ns == b.stall_ns && a.loaded_bytes == b.loaded_bytes;
    equal &= a.stored_bytes == b.stored_bytes && a.to_device_bytes == b.to_device_bytes;
    equal &= a.to_host_bytes == b.to_host_bytes && a.on_device_bytes == b.on_device_bytes;
    for (size_t i = 0; i < a.resources.size(); ++i) {
      equal &= a.resources[i].busy_ns == b.resources[i].busy_ns;
      equal &= a.resources[i].bytes == b.resources[i].bytes;
    }
    return equal;
  }

  // ---- The user, as torch and the hooks are: allocates and frees bucket memory when told.

  DeviceSpan allocate(BucketId bucket) {
    auto& memory = memory_[bucket];
    memory = std::make_unique<std::vector<std::byte>>(
        engine_->plan().layout.buckets[bucket].bytes(), std::byte{0xa5});
    const DeviceSpan span(reinterpret_cast<uint64_t>(memory->data()), memory->size());
    device_.adopt(span);
    return span;
  }
  void free(BucketId bucket) {
    auto& memory = memory_[bucket];
    device_.disown(DeviceSpan(reinterpret_cast<uint64_t>(memory->data()), memory->size()));
    memory.reset();
  }

  Task<Status> hold(BucketId bucket) {
    auto orders = co_await engine_->prepare(bucket);
    ZO_CO_TRY(orders.status());
    for (BucketId other : orders->drop) free(other);
    for (BucketId other : orders->offer) ZO_CO_TRY(engine_->offer(other, allocate(other), 0));
    Status status = co_await engine_->lease(bucket);
    co_return status;
  }
  Status let_go(BucketId bucket) {
    ZO_ASSIGN_OR_RETURN(const bool free_now, engine_->release(bucket));
    if (free_now) free(bucket);
    return Status();
  }

  Task<Status> user() {
    Status status = co_await train();
    status_ = status;
    co_return Status();  // the user's error is the user's, not the engine's
  }

  Task<Status> train() {
    const auto bucket_count = static_cast<BucketId>(s_.model.size());
    for (BucketId b = 0; b < bucket_count; ++b) {
      Status status = co_await initialise(b);
      ZO_CO_TRY(status);
    }
    for (uint32_t step = 0; step < s_.step_count; ++step) {
      for (uint32_t micro = 0; micro < s_.micro_steps; ++micro) {
        Status status = co_await pass(step, micro);
        ZO_CO_TRY(status);
      }
      StepOptions options;
      options.hypers = hypers();
      options.max_grad_norm = s_.max_grad_norm;
      auto report = co_await engine_->step(options);
      ZO_CO_TRY(report.status());
      if (step + 1 < s_.step_count) reported_ += engine_->attribution().last_step();
    }
    for (BucketId b = 0; b < bucket_count; ++b) {
      Status status = co_await hold(b);
      ZO_CO_TRY(status);
      weights_.push_back(*memory_[b]);
      ZO_CO_TRY(let_go(b));
    }
    Status status = co_await engine_->settle();
    ZO_CO_TRY(status);
    // settle() has moved the end of the last step to now.
    at_end_ = engine_->attribution().spent();
    reported_ += engine_->attribution().last_step();
    co_return Status();
  }

  Task<Status> initialise(BucketId b) {
    Status status = co_await hold(b);
    ZO_CO_TRY(status);
    const Layout& layout = engine_->plan().layout;
    const BucketLayout& bucket = layout.buckets[b];
    for (ParamId p = bucket.first_param; p < bucket.first_param + bucket.param_count; ++p) {
      for (uint64_t i = layout.params[p].begin; i < layout.params[p].begin + layout.params[p].numel;
           ++i) {
        store_element(memory_[b]->data(), i, bucket.dtype, initial_weight(s_, b, i));
      }
    }
    status = co_await engine_->write_back(b);
    ZO_CO_TRY(status);
    co_return let_go(b);
  }

  Task<Status> pass(uint32_t step, uint32_t micro) {
    engine_->begin_pass(1);
    const auto bucket_count = static_cast<BucketId>(s_.model.size());
    const uint32_t skipped =
        random_free_choice(step);  // a block that this pass leaves out, the same on all ranks
    for (BucketId b = 0; b < bucket_count; ++b) {  // forward
      if (b == skipped) continue;
      Status status = co_await hold(b);
      ZO_CO_TRY(status);
      ZO_CO_TRY(let_go(b));
    }
    for (BucketId b = bucket_count; b-- > 0;) {  // backward
      Status status = co_await hold(b);
      ZO_CO_TRY(status);
      status = co_await give_gradients(b, step, micro);
      ZO_CO_TRY(status);
      ZO_CO_TRY(let_go(b));
    }
    co_return Status();
  }

  uint32_t random_free_choice(uint32_t step) const {
    return step % 3 == 2 ? static_cast<uint32_t>(Random(s_.seed).fork(step).below(s_.model.size()))
                         : ~0u;
  }

  Task<Status> give_gradients(BucketId b, uint32_t step, uint32_t micro) {
    const Layout& layout = engine_->plan().layout;
    const BucketLayout& bucket = layout.buckets[b];
    if (!bucket.trainable) co_return Status();
    auto slot = co_await engine_->acquire_gradients();
    ZO_CO_TRY(slot.status());
    std::byte* gradient = device_.memory(engine_->gradient_memory(*slot, b)).data();
    std::vector<ParamId> params;
    for (ParamId p = bucket.first_param; p < bucket.first_param + bucket.param_count; ++p) {
      if (!has_gradient(s_, p, step, micro)) continue;
      params.push_back(p);
      for (uint64_t i = layout.params[p].begin; i < layout.params[p].begin + layout.params[p].numel;
           ++i) {
        const float weight = load_element(memory_[b]->data(), i, bucket.dtype);
        store_element(gradient, i, bucket.dtype, gradient_of(s_, b, i, weight, step, micro, rank_));
      }
    }
    co_return engine_->reduce(b, *slot, params, 0);
  }

  const Scenario& s_;
  const uint32_t rank_;
  Random random_;
  SimClock& clock_;
  SimGroup& group_;
  SimDevice device_;
  SimWorkers workers_;
  std::unique_ptr<Optimizer> optimizer_;
  HighwayGradientMath math_;
  HighwayStateCodec codec_;
  std::vector<std::unique_ptr<SimIoQueue>> disks_;
  std::unique_ptr<HbmTier> hbm_;
  std::unique_ptr<HostTier> host_;
  std::unique_ptr<NvmeTier> nvme_;
  std::map<BucketId, std::unique_ptr<std::vector<std::byte>>> memory_;
  Completion done_;
  std::unique_ptr<Engine> engine_;
  Status status_;
  std::vector<std::vector<std::byte>> weights_;
  Spent reported_;  // the sum of the steps' reports
  Spent at_end_;
};

// Polls every rank until `finished`, letting time pass when nothing moves.
template <typename Finished>
bool drive(std::vector<std::unique_ptr<Rank>>& ranks, SimClock& clock, Finished finished) {
  while (!finished()) {
    uint32_t moved = 0;
    for (auto& rank : ranks) moved += rank->engine().poll();
    if (moved > 0) continue;
    if (clock.now_ns() > kHangNs) return false;
    clock.doze(kStallNs);
  }
  return true;
}

}  // namespace

bool RunResult::all_ok() const {
  return std::all_of(status.begin(), status.end(), [](const Status& s) { return s.ok(); });
}

std::string RunResult::first_error() const {
  for (const Status& s : status) {
    if (!s.ok()) return s.to_string();
  }
  return "none";
}

RunResult run(const Scenario& scenario) {
  RunResult result;
  Trace trace(60);
  SimClock clock;
  SimGroupOptions group_options;
  group_options.any_order = true;
  SimGroup group(clock, scenario.world_size, group_options, scenario.seed, &trace);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t r = 0; r < scenario.world_size; ++r) {
    ranks.push_back(std::make_unique<Rank>(scenario, r, clock, group, &trace));
    const Status opened = ranks.back()->open();
    ZO_CHECK(opened.ok());  // the scenario is drawn so that it fits, and faults start after open()
  }
  if (scenario.killed_rank < scenario.world_size) {
    clock.at(clock.now_ns() + scenario.killed_at_ns, [&group, &scenario, &result] {
      group.kill(scenario.killed_rank);
      ++result.hard_fault_count;
    });
  }
  for (auto& rank : ranks) rank->start();
  const auto all = [&](auto predicate) {
    return [&ranks, predicate] { return std::all_of(ranks.begin(), ranks.end(), predicate); };
  };
  result.hung = !drive(ranks, clock, all([](const auto& rank) { return rank->done(); }));
  if (!result.hung) {
    for (auto& rank : ranks) rank->engine().drain();
    result.hung = !drive(ranks, clock, all([](const auto& rank) { return rank->engine().idle(); }));
  }
  ZO_CHECK(!result.hung);  // nothing below could be destroyed
  result.mismatch = group.mismatch();
  result.trace_hash = trace.hash();
  result.last_lines = trace.text();
  for (auto& rank : ranks) {
    result.status.push_back(rank->status());
    result.hard_fault_count += rank->hard_fault_count();
    result.soft_fault_count += rank->soft_fault_count();
    if (result.wrong_books.empty()) result.wrong_books = rank->wrong_books();
  }
  if (result.all_ok()) {
    result.weights = ranks[0]->weights();
    for (auto& rank : ranks) result.ranks_agree &= rank->weights() == result.weights;
  }
  return result;
}

Scenario draw(uint64_t seed) {
  Random random(seed);
  Scenario s;
  s.seed = seed;
  s.world_size = 1 + static_cast<uint32_t>(random.below(4));
  s.step_count = 2 + static_cast<uint32_t>(random.below(4));
  s.micro_steps = random.chance(0.3) ? 3 : 1;
  s.max_grad_norm = random.chance(0.5) ? 1.0 : 0.0;
  s.faults = random.chance(0.6);
  if (random.chance(0.15)) s.nonfinite_step = static_cast<uint32_t>(random.below(s.step_count));
  if (s.faults && random.chance(0.15)) {
    s.killed_rank = static_cast<uint32_t>(random.below(s.world_size));
    s.killed_at_ns = random.below(50'000'000);
  }
  const auto bucket_count = 2 + random.below(4);
  for (uint64_t b = 0; b < bucket_count; ++b) {
    BucketSpec bucket;
    bucket.name = "block" + std::to_string(b);
    bucket.dtype = random.chance(0.5) ? DType::kBFloat16 : DType::kFloat32;
    bucket.trainable = !random.chance(0.1);
    const auto formats = state_format_names();
    const uint64_t format = Random(seed).fork(1000 + b).below(formats.size());
    bucket.format = state_format_named(formats[format]).value();
    const auto param_count = 1 + random.below(4);
    for (uint64_t p = 0; p < param_count; ++p) {
      const uint64_t sizes[] = {0, 1, 31, 1000 + random.below(3000), 9000 + random.below(20000)};
      bucket.params.push_back({bucket.name + ".p" + std::to_string(p),
                               sizes[random.below(5)],
                               static_cast<uint32_t>(random.below(2)),
                               {}});
    }
    s.model.push_back(std::move(bucket));
  }
  const auto shares = [&random] {
    switch (random.below(5)) {
      case 0: return Placement{0, 0, 1};
      case 1: return Placement{0, 1, 0};
      case 2: return Placement{1, 0, 0};
      case 3: return Placement{0, 0.5, 0.5};
      default: return Placement{0.2, 0.3, 0.5};
    }
  };
  s.plan.params = shares();
  s.plan.optimizer = shares();
  s.plan.subgroup_bytes = (1 + random.below(8)) * kNormChunk * 12;
  s.plan.workers = 1 + static_cast<uint32_t>(random.below(4));
  s.plan.prefetch = static_cast<uint32_t>(random.below(4));
  s.plan.micro_steps = s.micro_steps;
  return s;
}

}  // namespace zoffload::sim_test
