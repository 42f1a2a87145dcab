// Every Tier there is, as rows of one table, each with the small world that it stands on. A new
// tier is a new row.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/ports/clock.h"
#include "core/ports/tier.h"
#include "cuda/host_device.h"
#include "tests/conformance/memory_queue.h"
#include "tests/conformance/sim_factories.h"
#include "tiers/hbm_tier.h"
#include "tiers/host_tier.h"
#include "tiers/nvme_tier.h"

namespace zoffload {

// Time stands still until somebody dozes.
class DozingClock : public Clock {
 public:
  uint64_t now_ns() const override { return now_ns_; }
  void doze(uint64_t ns_max) override { now_ns_ += ns_max; }

 private:
  uint64_t now_ns_ = 0;
};

// Jobs end some polls after they were submitted, in any order.
struct SelfPumpedWorkers : WithClock<SimWorkers> {
  using WithClock::WithClock;
  uint32_t poll() override {
    clock.doze(10'000);
    return SimWorkers::poll();
  }
};

struct TierWorld {
  HostDevice device;
  DozingClock clock;
  std::vector<std::unique_ptr<MemoryQueue>> queues;  // one for each path; none for tiers without
  std::unique_ptr<Workers> workers;                  // where the tier has some
  std::unique_ptr<Tier> tier;

  uint32_t poll() {
    if (workers != nullptr) workers->poll();
    return tier->poll();
  }

  // Page-aligned, pinned, a multiple of kPageBytes.
  HostSpan memory(uint64_t bytes) {
    return device.allocate_pinned(round_up(bytes, kPageBytes)).value();
  }
};

struct TierRow {
  const char* name;
  std::unique_ptr<TierWorld> (*make)(uint64_t capacity_bytes, uint64_t seed);
};

inline std::unique_ptr<TierWorld> make_hbm_world(uint64_t capacity_bytes, uint64_t) {
  auto world = std::make_unique<TierWorld>();
  world->tier =
      std::make_unique<HbmTier>(world->device, world->device.allocate_hbm(capacity_bytes).value());
  return world;
}

inline std::unique_ptr<TierWorld> make_host_world(uint64_t capacity_bytes, uint64_t) {
  auto world = std::make_unique<TierWorld>();
  world->tier = std::make_unique<HostTier>(world->memory(capacity_bytes));
  return world;
}

// One path for each weight. Blocks are small, so that small extents already make several.
inline std::unique_ptr<TierWorld> make_nvme_world(uint64_t capacity_bytes, uint64_t seed,
                                                  const std::vector<double>& weights,
                                                  bool with_workers = false) {
  auto world = std::make_unique<TierWorld>();
  if (with_workers) {
    world->workers = std::make_unique<SelfPumpedWorkers>(SimWorkersOptions{}, seed, nullptr);
  }
  std::vector<NvmePath> paths;
  for (double weight : weights) {
    const uint64_t queue_seed = seed == 0 ? 0 : seed + paths.size();
    world->queues.push_back(std::make_unique<MemoryQueue>(4, queue_seed));
    const std::string name = "/mnt/" + std::to_string(paths.size());
    paths.push_back({world->queues.back().get(), name + "/zo-swap.dat", weight, name});
  }
  const NvmeOptions options{.block_bytes = 2 * kPageBytes, .extent_bytes_max = 64 * kPageBytes};
  world->tier =
      std::move(NvmeTier::open(std::move(paths), capacity_bytes, world->memory(options.block_bytes),
                               world->clock, options, {}, world->workers.get())
                    .value());
  return world;
}

inline std::unique_ptr<TierWorld> make_nvme_one_world(uint64_t capacity_bytes, uint64_t seed) {
  return make_nvme_world(capacity_bytes, seed, {1});
}

inline std::unique_ptr<TierWorld> make_nvme_three_world(uint64_t capacity_bytes, uint64_t seed) {
  return make_nvme_world(capacity_bytes, seed, {3, 1, 2});
}

inline std::unique_ptr<TierWorld> make_nvme_workers_world(uint64_t capacity_bytes, uint64_t seed) {
  return make_nvme_world(capacity_bytes, seed, {1, 2}, true);
}

inline constexpr TierRow kMemoryTierRows[] = {
    {"hbm", make_hbm_world},
    {"host", make_host_world},
};

// The ones with drives below, whose faults `queues` can inject.
inline constexpr TierRow kDriveTierRows[] = {
    {"nvme_one_path", make_nvme_one_world},
    {"nvme_three_paths", make_nvme_three_world},
    {"nvme_workers", make_nvme_workers_world},
};

}  // namespace zoffload
