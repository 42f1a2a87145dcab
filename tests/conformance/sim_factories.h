// The simulated ports as the conformance suites want them: each with a clock of its own. Suites
// that can wait get a pump that lets simulated time pass; for those that only poll, time passes in
// poll().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/sim/sim_clock.h"
#include "core/sim/sim_communicator.h"
#include "core/sim/sim_device.h"
#include "core/sim/sim_disk.h"
#include "core/sim/sim_workers.h"

namespace zoffload {

inline constexpr uint64_t kSimDozeNs = 1'000'000;

// A base, so that the clock outlives the port.
struct OwnClock {
  SimClock clock;
};

template <typename Port>
struct WithClock : OwnClock, Port {
  template <typename... Args>
  explicit WithClock(Args&&... args) : Port(clock, std::forward<Args>(args)...) {}

  std::function<void()> pump() {
    return [this] { clock.doze(kSimDozeNs); };
  }
};

struct SelfPumpedDevice : WithClock<SimDevice> {
  using WithClock::WithClock;
  uint32_t poll() override {
    clock.doze(kSimDozeNs);
    return SimDevice::poll();
  }
};

inline std::unique_ptr<Device> make_sim_device(bool host_visible) {
  const SimDeviceOptions options{.host_visible = host_visible, .any_order = true};
  return std::make_unique<SelfPumpedDevice>(options, 1, nullptr);
}

// One rank of a simulated group that lives as long as its last rank.
class SelfPumpedRank : public Communicator {
 public:
  struct World : OwnClock {
    explicit World(uint32_t world_size)
        : group(clock, world_size, {.any_order = true}, 1, nullptr) {}
    SimGroup group;
  };

  SelfPumpedRank(std::shared_ptr<World> world, uint32_t rank)
      : world_(std::move(world)), rank_(world_->group.rank(rank)) {}

  const char* name() const override { return rank_.name(); }
  uint32_t rank() const override { return rank_.rank(); }
  uint32_t world_size() const override { return rank_.world_size(); }
  void all_gather(Turn turn, DeviceSpan own, DeviceSpan all, Completion& completion) override {
    rank_.all_gather(turn, own, all, completion);
  }
  void reduce_scatter_mean(Turn turn, DeviceSpan all, DeviceSpan own, DType dtype,
                           Completion& completion) override {
    rank_.reduce_scatter_mean(turn, all, own, dtype, completion);
  }
  void all_reduce_sum(Turn turn, std::span<double> values, Completion& completion) override {
    rank_.all_reduce_sum(turn, values, completion);
  }
  void abort(const Status& reason) override { rank_.abort(reason); }
  uint32_t poll() override {
    world_->clock.doze(kSimDozeNs);
    return rank_.poll();
  }

 private:
  const std::shared_ptr<World> world_;
  Communicator& rank_;
};

// All ranks must be driven from one thread. Device memory must be host memory.
inline std::vector<std::unique_ptr<Communicator>> make_sim_ranks(uint32_t world_size, Device&) {
  const auto world = std::make_shared<SelfPumpedRank::World>(world_size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    ranks.push_back(std::make_unique<SelfPumpedRank>(world, rank));
  }
  return ranks;
}

}  // namespace zoffload
