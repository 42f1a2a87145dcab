#include "core/engine/update_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "core/engine/operation.h"
#include "core/sim/sim_device.h"
#include "tiers/hbm_tier.h"
#include "tiers/host_tier.h"

namespace zoffload {
namespace {

// One bf16 subgroup with its parameters and its state on the tiers asked for.
class UpdateBufferTest : public testing::Test {
 protected:
  void open(Placement params, Placement optimizer, bool in_place = false) {
    BucketSpec bucket;
    bucket.dtype = DType::kBFloat16;
    bucket.in_place = in_place;
    bucket.params = {{"p", kNormChunk, 0, HostSpan(user_memory).first(in_place ? 8192 : 0)}};
    PlanRequest request;
    request.params = params;
    request.optimizer = optimizer;
    request.subgroup_bytes = kNormChunk * 12;
    plan = std::move(make_plan({bucket}, request).value());
    const HostSpan arena = device.allocate_pinned(plan.arena_bytes() + kPageBytes).value();
    const DeviceSpan memory = device.allocate_hbm(plan.device_bytes() + kPageBytes).value();
    const uint64_t host_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHost)];
    const uint64_t hbm_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHbm)];
    hbm.emplace(device, memory.subspan(0, hbm_bytes));
    host.emplace(arena.first(host_bytes));
    swap =
        std::move(SwapManager::open(plan, Tiers{&*hbm, &*host, nullptr},
                                    arena.subspan(host_bytes, plan.arena_bytes() - host_bytes),
                                    memory.subspan(hbm_bytes, plan.gradient.total_bytes()), failure)
                      .value());
  }
  void drive() {
    while (device.in_flight() > 0) {
      clock.doze(~uint64_t{0});
      device.poll();
    }
    host->poll();
  }

  SimClock clock;
  SimDevice device{clock, SimDeviceOptions{}, 1, nullptr};
  std::vector<std::byte> user_memory = std::vector<std::byte>(8192);
  Plan plan;
  Failure failure;
  std::optional<HbmTier> hbm;
  std::optional<HostTier> host;
  std::unique_ptr<SwapManager> swap;
};

constexpr Placement kHost{0, 1, 0};
constexpr Placement kHbm{1, 0, 0};

// Goal: homes in host memory are used where they lie. Method: no slot, no operation, same address.
TEST_F(UpdateBufferTest, HostHomesStay) {
  open(kHost, kHost);
  UpdateBuffer buffer(*swap, 0);
  EXPECT_FALSE(buffer.needs_slot());
  EXPECT_EQ(buffer.bytes(Role::kMaster).data(), swap->home(0, Role::kMaster).host_bytes().data());
  EXPECT_EQ(buffer.bytes(Role::kParam).size(), kNormChunk * 2);
  EXPECT_TRUE(buffer.bytes(Role::kGrad).empty());
  OperationSet operations("none");
  buffer.load(Role::kMaster, Urgency::kPrefetch, operations);
  buffer.store(Role::kMaster, operations);
  EXPECT_TRUE(operations.all().ready());  // nothing was started
  EXPECT_EQ(host->loaded_bytes() + host->stored_bytes(), 0u);
}

// Goal: only what travels needs a slot, and the slot goes back with the buffer. Method: parameters
// in HBM, state in host memory.
TEST_F(UpdateBufferTest, OnlyTravellingRolesUseTheSlot) {
  open(kHbm, kHost);
  {
    UpdateBuffer buffer(*swap, 0);
    EXPECT_TRUE(buffer.needs_slot());
    EXPECT_TRUE(buffer.travels(Role::kParam));
    EXPECT_FALSE(buffer.travels(Role::kMaster));
    buffer.use(std::move(*swap->update_slots().acquire().await_resume()));
    EXPECT_EQ(swap->update_slots().lent_count(), 1u);
    EXPECT_EQ(buffer.bytes(Role::kParam).size(), kNormChunk * 2);
  }
  EXPECT_EQ(swap->update_slots().lent_count(), 0u);  // goes back with the buffer
}

// Goal: the roles lie in the slot one after the other, and travel to their own homes and back.
// Method: all in HBM, each role with a value of its own.
TEST_F(UpdateBufferTest, StoresAndLoads) {
  open(kHbm, kHbm);
  UpdateBuffer buffer(*swap, 0);
  buffer.use(std::move(*swap->update_slots().acquire().await_resume()));
  int value = 1;
  OperationSet writes("stores");
  for (Role role : {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
    std::memset(buffer.bytes(role).data(), value++, buffer.bytes(role).size());
  }
  for (Role role : {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
    buffer.store(role, writes);
  }
  drive();
  ASSERT_TRUE(writes.all().ready());
  value = 1;
  for (Role role : {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
    const HostSpan home = device.memory(swap->home(0, role).device_bytes());
    EXPECT_EQ(home.front(), std::byte(value));  // none lay over another
    EXPECT_EQ(home.back(), std::byte(value++));
    std::memset(home.data(), 99, home.size());
  }
  OperationSet reads("loads");
  buffer.load(Role::kExpAvg, Urgency::kPrefetch, reads);
  drive();
  ASSERT_TRUE(reads.all().ready());
  EXPECT_EQ(buffer.bytes(Role::kExpAvg).back(), std::byte{99});
  EXPECT_EQ(buffer.bytes(Role::kMaster).back(), std::byte{2});  // was not loaded
}

// Goal: what the user keeps in place is none of ours. Method: no bytes, no travel, no operation.
TEST_F(UpdateBufferTest, InPlaceParametersAreTheUsers) {
  open(kHost, kHost, true);
  UpdateBuffer buffer(*swap, 0);
  EXPECT_TRUE(buffer.bytes(Role::kParam).empty());
  EXPECT_FALSE(buffer.travels(Role::kParam));
  EXPECT_FALSE(buffer.needs_slot());
  EXPECT_EQ(buffer.bytes(Role::kMaster).size(), kNormChunk * 4);
}

}  // namespace
}  // namespace zoffload
