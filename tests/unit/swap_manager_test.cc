#include "core/engine/swap_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "core/sim/sim_device.h"
#include "tests/unit/flow_helpers.h"
#include "tiers/hbm_tier.h"
#include "tiers/host_tier.h"

namespace zoffload {
namespace {

// Parameters in HBM, state in host memory: two tiers of different kinds without a disk.
class SwapManagerTest : public testing::Test {
 protected:
  void SetUp() override {
    BucketSpec trained;
    trained.dtype = DType::kBFloat16;
    trained.params = {{"p", 2 * kNormChunk, 0, {}}};
    BucketSpec frozen;
    frozen.trainable = false;
    frozen.params = {{"q", 100, 0, {}}};
    PlanRequest request;
    request.params = {1, 0, 0};
    request.optimizer = {0, 1, 0};
    request.subgroup_bytes = kNormChunk * 12;
    plan = std::move(make_plan({trained, frozen}, request).value());
    const HostSpan arena = device.allocate_pinned(plan.arena_bytes()).value();
    const DeviceSpan hbm_memory = device.allocate_hbm(plan.device_bytes()).value();
    const uint64_t host_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHost)];
    const uint64_t hbm_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHbm)];
    slots = arena.subspan(host_bytes);
    gradients = hbm_memory.subspan(hbm_bytes, plan.gradient.total_bytes());
    hbm.emplace(device, hbm_memory.subspan(0, hbm_bytes));
    host.emplace(arena.first(host_bytes));
    auto opened = SwapManager::open(plan, Tiers{&*hbm, &*host, nullptr}, slots, gradients, failure);
    ASSERT_TRUE(opened.ok());
    swap = std::move(*opened);
  }

  SimClock clock;
  SimDevice device{clock, SimDeviceOptions{}, 1, nullptr};
  Plan plan;
  HostSpan slots;
  DeviceSpan gradients;
  Failure failure;
  std::optional<HbmTier> hbm;
  std::optional<HostTier> host;
  std::unique_ptr<SwapManager> swap;
};

// Goal: each role lives where the plan says, and only the roles that the bucket keeps. Method: look
// at the homes of a trained and of a frozen subgroup; every planned byte is used.
TEST_F(SwapManagerTest, HomesFollowThePlan) {
  EXPECT_EQ(swap->home(0, Role::kParam).tier, &*hbm);
  EXPECT_EQ(swap->home(0, Role::kParam).extent.bytes, kNormChunk * 2);
  EXPECT_TRUE(swap->home(0, Role::kParam).host_bytes().empty());
  EXPECT_FALSE(swap->home(0, Role::kParam).device_bytes().empty());
  for (Role role : {Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
    EXPECT_EQ(swap->home(0, role).tier, &*host);
    EXPECT_EQ(swap->home(0, role).host_bytes().size(), kNormChunk * 4);
    EXPECT_FALSE(swap->home(2, role).exists());
  }
  EXPECT_TRUE(swap->home(2, Role::kParam).exists());
  EXPECT_FALSE(swap->home(0, Role::kGrad).exists());
  EXPECT_EQ(host->used_bytes(), host->capacity_bytes());
  EXPECT_EQ(hbm->used_bytes(), hbm->capacity_bytes());
}

// Goal: slots and gradient homes share the memory without overlap. Method: mark every byte of each
// and count: what is marked twice would be missing at the end.
TEST_F(SwapManagerTest, MemoryIsSharedOut) {
  const auto mark = [](HostSpan bytes) { std::fill(bytes.begin(), bytes.end(), std::byte{1}); };
  std::memset(slots.data(), 0, slots.size());
  uint64_t marked = 0;
  const auto mark_all = [&](SlotPool& pool, uint64_t bytes, auto span_of) {
    std::vector<SlotPool::Slot> held;
    while (pool.lent_count() < pool.count()) {
      held.push_back(std::move(*pool.acquire().await_resume()));
      mark(span_of(held.back()));
      marked += bytes;
    }
  };
  mark_all(swap->update_slots(), plan.update.bytes, [&](auto& s) { return swap->update_bytes(s); });
  mark_all(swap->staging_slots(), plan.staging.bytes,
           [&](auto& s) { return swap->staging_bytes(s, plan.staging.bytes); });
  for (SubgroupId id = 0; id < 3; ++id) {
    mark(swap->gradient_home(id));
    marked += swap->gradient_home(id).size();
  }
  EXPECT_TRUE(swap->gradient_home(2).empty());  // not trained
  EXPECT_EQ(marked, slots.size());
  for (std::byte b : slots) ASSERT_EQ(b, std::byte{1});
  EXPECT_EQ(swap->gradient_bytes(1, 8).address(), gradients.address() + plan.gradient.bytes);
}

Task<Status> await_settled(SwapManager& swap, SubgroupId id, Diary& diary) {
  Status status = co_await swap.settled(id);
  ZO_CO_TRY(status);
  diary.push_back(std::to_string(id));
  co_return Status();
}

Task<Status> await_settled_or(SwapManager& swap, SubgroupId id, bool& other, Diary& diary) {
  Status status = co_await swap.settled_or(id, [&other] { return other; });
  ZO_CO_TRY(status);
  diary.push_back("or " + std::to_string(id));
  co_return Status();
}

Task<Status> await_all_settled(SwapManager& swap, Diary& diary) {
  Status status = co_await swap.all_settled();
  ZO_CO_TRY(status);
  diary.push_back("all");
  co_return Status();
}

// Goal: whoever needs a home waits until its last writer is done. Method: unsettle two, settle one
// after the other, and see who runs when.
TEST_F(SwapManagerTest, SettlingWakesWhoWaits) {
  NotedFlows noted;
  Diary diary;
  bool other = false;
  swap->unsettle(0);
  swap->unsettle(1);
  noted.flows.spawn("a", await_settled(*swap, 0, diary));
  noted.flows.spawn("b", await_settled_or(*swap, 1, other, diary));
  noted.flows.spawn("c", await_all_settled(*swap, diary));
  noted.flows.spawn("d", await_settled(*swap, 2, diary));
  noted.flows.tick();
  EXPECT_EQ(diary, (Diary{"2"}));
  swap->settle(0);
  noted.flows.tick();
  EXPECT_EQ(diary, (Diary{"2", "0"}));
  other = true;
  noted.flows.tick();
  EXPECT_EQ(diary, (Diary{"2", "0", "or 1"}));
  swap->settle(1);
  noted.flows.tick();
  EXPECT_EQ(diary.back(), "all");
  EXPECT_EQ(noted.flows.count(), 0u);
}

// Goal: a home that will never settle returns the failure. Method: fail while one waits.
TEST_F(SwapManagerTest, FailureEndsTheWait) {
  NotedFlows noted;
  Diary diary;
  swap->unsettle(0);
  noted.flows.spawn("a", await_settled(*swap, 0, diary));
  noted.flows.tick();
  EXPECT_TRUE(failure.set(Status(Code::kIoError, "gone")));
  noted.flows.tick();
  ASSERT_EQ(noted.failures.size(), 1u);
  EXPECT_TRUE(diary.empty());
}

// Goal: a home has one writer. Method: unsettle twice, settle twice, load a role that is not kept.
using SwapManagerDeathTest = SwapManagerTest;

TEST_F(SwapManagerDeathTest, MisuseEndsTheProcess) {
  Completion completion;
  EXPECT_DEATH(swap->settle(0), "unsettled");
  EXPECT_DEATH(
      {
        swap->unsettle(0);
        swap->unsettle(0);
      },
      "unsettled");
  EXPECT_DEATH(swap->load(2, Role::kMaster, slots, Urgency::kDemand, completion),
               "from.exists\\(\\)");
  EXPECT_DEATH(static_cast<void>(swap->gradient_bytes(0, plan.gradient.bytes + 1)),
               "gradient_plan_.bytes");
}

// Goal: a plan larger than its tier is an error of the world. Method: a host tier one page short.
TEST_F(SwapManagerTest, TierTooSmall) {
  HostTier small(device.allocate_pinned(host->capacity_bytes() - kPageBytes).value());
  HbmTier hbm_again(device, device.allocate_hbm(hbm->capacity_bytes()).value());
  const auto opened =
      SwapManager::open(plan, Tiers{&hbm_again, &small, nullptr}, slots, gradients, failure);
  EXPECT_EQ(opened.status().code(), Code::kOutOfSpace);
}

}  // namespace
}  // namespace zoffload
