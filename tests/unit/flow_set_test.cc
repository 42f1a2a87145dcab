#include "core/engine/flow_set.h"

#include <gtest/gtest.h>

#include <memory>

#include "core/engine/operation.h"
#include "tests/unit/flow_helpers.h"

namespace zoffload {
namespace {

// Goal: flows run in spawn order, whichever became ready first, and each once a tick. Method: open
// the gates of the later flows before that of the first.
TEST(FlowSet, ResumesInSpawnOrder) {
  NotedFlows noted;
  Diary diary;
  Gate gates[3];
  for (int i = 0; i < 3; ++i) {
    noted.flows.spawn("f", pass(gates[i], diary, std::to_string(i)));
  }
  EXPECT_TRUE(diary.empty());  // spawn() does not run them
  EXPECT_EQ(noted.flows.tick(), 3u);
  EXPECT_EQ(diary, (Diary{"0 starts", "1 starts", "2 starts"}));
  diary.clear();
  gates[2].open = true;
  EXPECT_EQ(noted.flows.tick(), 1u);
  gates[1].open = true;
  gates[0].open = true;
  EXPECT_EQ(noted.flows.tick(), 2u);
  EXPECT_EQ(diary, (Diary{"2 ends", "0 ends", "1 ends"}));
  EXPECT_EQ(noted.flows.tick(), 0u);
  EXPECT_TRUE(noted.failures.empty());
}

Task<Status> spawner(FlowSet& flows, Diary& diary) {
  Operation child("the child");
  flows.spawn("child", end_with(Status(Code::kIoError, "gone")), &child);
  diary.push_back("spawned");
  Status status = co_await child;
  diary.push_back(status.message());
  co_return Status();
}

// Goal: what is spawned while flows run starts in the same tick; its parent hears its end, with the
// flow's name, and so does the failure callback. Method: a parent whose child fails at once.
TEST(FlowSet, ChildrenRunAndReport) {
  NotedFlows noted;
  Diary diary;
  noted.flows.spawn("parent", spawner(noted.flows, diary));
  EXPECT_EQ(noted.flows.tick(), 2u);
  ASSERT_EQ(noted.failures.size(), 1u);
  EXPECT_EQ(noted.failures[0].to_string(), "kIoError: child: gone");
  EXPECT_EQ(noted.flows.tick(), 1u);
  EXPECT_EQ(diary, (Diary{"spawned", "child: gone"}));
  EXPECT_EQ(noted.flows.count(), 0u);
  EXPECT_EQ(noted.flows.count_max(), 2u);
}

Task<Status> note_count(FlowSet& flows, Gate& gate, uint32_t& count) {
  co_await gate;
  count = flows.count();
  co_return Status();
}

// Goal: a flow that has ended is not counted, also not by a flow that runs later in that tick.
// Method: the later flow of two counts.
TEST(FlowSet, CountsOnlyFlowsThatAreAlive) {
  NotedFlows noted;
  Diary diary;
  Gate gate;
  uint32_t count = 0;
  noted.flows.spawn("first", pass(gate, diary, "first"));
  noted.flows.spawn("second", note_count(noted.flows, gate, count));
  noted.flows.tick();
  EXPECT_EQ(noted.flows.count(), 2u);
  gate.open = true;
  noted.flows.tick();
  EXPECT_EQ(count, 1u);
}

// Goal: the watchdog's text: who waits for what, and how many more there are. Method: compare it.
TEST(FlowSet, Describes) {
  NotedFlows noted;
  Diary diary;
  Gate gate;
  noted.flows.spawn("gather a", pass(gate, diary, "a"));
  EXPECT_EQ(noted.flows.describe(5), "\n  gather a: about to run");
  noted.flows.spawn("gather b", pass(gate, diary, "b"));
  noted.flows.spawn("gather c", pass(gate, diary, "c"));
  noted.flows.tick();
  EXPECT_EQ(noted.flows.describe(2),
            "\n  gather a: waits for the gate\n  gather b: waits for the gate\n  ... and 1 more");
  EXPECT_EQ(noted.flows.describe(3).find("more"), std::string::npos);
  gate.open = true;
  noted.flows.tick();
  EXPECT_EQ(noted.flows.describe(3), "");
}

// Goal: flows are never dropped half-way. Method: destroy the set with one parked.
TEST(FlowSetDeathTest, MustBeEmptyAtTheEnd) {
  Diary diary;
  Gate gate;
  EXPECT_DEATH(
      {
        FlowSet flows([](const Status&) {});
        flows.spawn("f", pass(gate, diary, "f"));
      },
      "flows_.empty\\(\\)");
}

}  // namespace
}  // namespace zoffload
