#include "core/engine/slot_pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/unit/flow_helpers.h"

namespace zoffload {
namespace {

// Takes a slot, notes its index, keeps it until the gate opens.
Task<Status> use(SlotPool& pool, Gate& gate, Diary& diary, std::string name) {
  auto slot = co_await pool.acquire();
  ZO_CO_TRY(slot.status());
  diary.push_back(name);
  co_await gate;
  co_return Status();
}

// Goal: first come, first served, also when the one that came first is later in spawn order.
// Method: the flow that is spawned first queues last.
TEST(SlotPool, IsFair) {
  NotedFlows noted;
  Failure failure;
  SlotPool pool("staging", 1, failure);
  Gate gates[3];
  Diary diary;
  std::optional<SlotPool::Acquire> before(std::in_place, pool);  // queues ahead of all flows
  noted.flows.spawn("a", use(pool, gates[0], diary, "a"));
  noted.flows.spawn("b", use(pool, gates[1], diary, "b"));
  noted.flows.tick();
  EXPECT_TRUE(diary.empty());  // a slot is free, but they are not at the front
  EXPECT_EQ(noted.flows.describe(2).find("\n  a: waits for slot of pool staging (0 of 1 lent)"),
            0u);
  before.reset();  // one that gives up leaves the queue
  EXPECT_EQ(noted.flows.tick(), 1u);
  EXPECT_EQ(diary, (Diary{"a"}));
  noted.flows.spawn("c", use(pool, gates[2], diary, "c"));
  noted.flows.tick();
  EXPECT_EQ(diary, (Diary{"a"}));
  for (Gate& gate : gates) gate.open = true;
  while (noted.flows.tick() > 0) continue;
  EXPECT_EQ(diary, (Diary{"a", "b", "c"}));
  EXPECT_EQ(pool.lent_count(), 0u);
  EXPECT_EQ(pool.lent_count_max(), 1u);
}

// Goal: a slot is lent to one at a time, and goes back by RAII, moves included. Method: take all
// there are, move them about, and let go.
TEST(SlotPool, LendsEachSlotOnce) {
  Failure failure;
  SlotPool pool("update", 3, failure);
  {
    std::vector<SlotPool::Slot> slots;
    std::set<uint32_t> indices;
    for (int i = 0; i < 3; ++i) {
      SlotPool::Acquire acquire(pool);
      ASSERT_TRUE(acquire.ready());
      auto slot = acquire.await_resume();
      ASSERT_TRUE(slot.ok());
      indices.insert(slot->index());
      slots.push_back(std::move(*slot));
      EXPECT_FALSE(slot->held());
    }
    EXPECT_EQ(indices, (std::set<uint32_t>{0, 1, 2}));
    EXPECT_EQ(pool.lent_count(), 3u);
    SlotPool::Acquire one_more(pool);
    EXPECT_FALSE(one_more.ready());
    slots[0] = SlotPool::Slot();
    EXPECT_EQ(pool.lent_count(), 2u);
    EXPECT_TRUE(one_more.ready());
    slots[1] = std::move(slots[2]);  // the slot that slots[1] held must not be lost
    EXPECT_TRUE(slots[1].held());
  }
  EXPECT_EQ(pool.lent_count(), 0u);
  EXPECT_EQ(pool.lent_count_max(), 3u);
}

// Goal: after a failure a slot may never come: whoever waits is told, and takes none. Method: fail
// while two wait, one slot being free again.
TEST(SlotPool, FailureEndsTheWait) {
  NotedFlows noted;
  Failure failure;
  SlotPool pool("staging", 1, failure);
  Gate gate;
  Diary diary;
  noted.flows.spawn("holder", use(pool, gate, diary, "holder"));
  noted.flows.spawn("waiter", use(pool, gate, diary, "waiter"));
  noted.flows.tick();
  EXPECT_TRUE(failure.set(Status(Code::kIoError, "gone")));
  EXPECT_FALSE(failure.set(Status(Code::kTimeout, "later")));  // the first sticks
  noted.flows.tick();
  ASSERT_EQ(noted.failures.size(), 1u);
  EXPECT_EQ(noted.failures[0].to_string(), "kIoError: waiter: gone");
  EXPECT_EQ(pool.lent_count(), 1u);
  gate.open = true;
  noted.flows.tick();
  EXPECT_EQ(pool.lent_count(), 0u);
  noted.flows.spawn("late", use(pool, gate, diary, "late"));
  noted.flows.tick();
  EXPECT_EQ(noted.failures.size(), 2u);
  EXPECT_EQ(diary, (Diary{"holder"}));
}

// Goal: a leaked slot, and a wait that could never end, are our mistakes. Method: death tests.
TEST(SlotPoolDeathTest, Misuse) {
  Failure failure;
  SlotPool none("none", 0, failure);
  EXPECT_DEATH(static_cast<void>(none.acquire()), "count_ > 0");
  EXPECT_DEATH(static_cast<void>(SlotPool::Slot().index()), "held\\(\\)");
  EXPECT_DEATH(
      {
        SlotPool::Slot leaked;
        SlotPool pool("staging", 1, failure);
        leaked = std::move(*pool.acquire().await_resume());
      },
      "free_.size\\(\\) == count_");
}

}  // namespace
}  // namespace zoffload
