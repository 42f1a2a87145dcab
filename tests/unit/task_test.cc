#include "core/engine/task.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/flow_helpers.h"

namespace zoffload {
namespace {

Task<int> add(int a, int b) { co_return a + b; }

Task<int> add_after(Gate& gate, int a, int b) {
  co_await gate;
  int sum = co_await add(a, b);
  co_return sum;
}

Task<Status> sum_up(Gate& gate, int& sum) {
  int first = co_await add_after(gate, 1, 2);
  int second = co_await add(first, 10);
  sum = second;
  co_return Status();
}

// Goal: a task starts when it is awaited, runs as a part of the awaiting flow through any depth,
// and hands its value back. Method: three levels with a wait in the middle one.
TEST(Task, NestsToAnyDepth) {
  NotedFlows noted;
  Gate gate;
  int sum = 0;
  noted.flows.spawn("sum", sum_up(gate, sum));
  EXPECT_EQ(noted.flows.tick(), 1u);
  EXPECT_EQ(noted.flows.tick(), 0u);  // parked in the inner task
  EXPECT_EQ(sum, 0);
  gate.open = true;
  EXPECT_EQ(noted.flows.tick(), 1u);
  EXPECT_EQ(sum, 13);
  EXPECT_EQ(noted.flows.count(), 0u);
}

Task<Status> mark(bool& ran) {
  ran = true;
  co_return Status();
}

// Goal: lazy: a task that nobody awaits never runs, and frees itself. Method: drop one, and move
// one.
TEST(Task, StartsOnlyWhenAwaited) {
  bool ran = false;
  {
    Task<Status> dropped = mark(ran);
    Task<Status> moved = std::move(dropped);
    EXPECT_FALSE(ran);
  }
  EXPECT_FALSE(ran);
}

Task<std::unique_ptr<int>> make(int value) { co_return std::make_unique<int>(value); }

Task<Status> take(int& value) {
  std::unique_ptr<int> made = co_await make(5);
  value = *made;
  co_return Status();
}

// Goal: values that only move pass through. Method: a unique_ptr.
TEST(Task, ReturnsWhatOnlyMoves) {
  NotedFlows noted;
  int value = 0;
  noted.flows.spawn("take", take(value));
  noted.flows.tick();
  EXPECT_EQ(value, 5);
}

Task<Status> try_both(Status first, bool& reached) {
  ZO_CO_TRY(Status());
  ZO_CO_TRY(first);
  reached = true;
  co_return Status();
}

// Goal: ZO_CO_TRY ends the coroutine with the error, and only then. Method: with and without one.
TEST(Task, CoTryEndsAtTheError) {
  NotedFlows noted;
  bool reached = false;
  noted.flows.spawn("bad", try_both(Status(Code::kIoError, "gone"), reached));
  noted.flows.tick();
  EXPECT_FALSE(reached);
  ASSERT_EQ(noted.failures.size(), 1u);
  EXPECT_EQ(noted.failures[0].message(), "bad: gone");
  noted.flows.spawn("good", try_both(Status(), reached));
  noted.flows.tick();
  EXPECT_TRUE(reached);
  EXPECT_EQ(noted.failures.size(), 1u);
}

}  // namespace
}  // namespace zoffload
