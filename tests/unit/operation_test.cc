#include "core/engine/operation.h"

#include <gtest/gtest.h>

#include "tests/unit/flow_helpers.h"

namespace zoffload {
namespace {

Task<Status> await_one(Operation& operation) {
  Status status = co_await operation;
  co_return status;
}

Task<Status> await_all(OperationSet& set) {
  Status status = co_await set.all();
  co_return status;
}

// Goal: a flow waits for its operation and gets its status. Method: finish it with an error.
TEST(Operation, IsAwaited) {
  NotedFlows noted;
  Operation operation("the load");
  operation.start();
  noted.flows.spawn("f", await_one(operation));
  noted.flows.tick();
  EXPECT_EQ(noted.flows.describe(1), "\n  f: waits for the load");
  EXPECT_EQ(noted.flows.tick(), 0u);
  operation.finish(Status(Code::kIoError, "gone"), 3);
  EXPECT_EQ(noted.flows.tick(), 1u);
  ASSERT_EQ(noted.failures.size(), 1u);
  EXPECT_EQ(noted.failures[0].message(), "f: gone");
}

// Goal: the set is done when all are, in whatever order they end, and reports the first error in
// the order in which they were added. Method: end three from last to first, two of them badly.
TEST(OperationSet, WaitsForAllAndKeepsTheFirstError) {
  NotedFlows noted;
  OperationSet set("loads");
  Operation* operations[3];
  for (Operation*& operation : operations) {
    operation = &set.add();
    operation->start();
  }
  noted.flows.spawn("f", await_all(set));
  noted.flows.tick();
  operations[2]->finish(Status(Code::kIoError, "third"));
  operations[1]->finish(Status(Code::kCorruption, "second"));
  EXPECT_EQ(noted.flows.tick(), 0u);
  EXPECT_EQ(noted.flows.describe(1), "\n  f: waits for loads (3 of 3 left)");
  operations[0]->finish(Status());
  EXPECT_EQ(noted.flows.tick(), 1u);
  ASSERT_EQ(noted.failures.size(), 1u);
  EXPECT_EQ(noted.failures[0].to_string(), "kCorruption: f: second");
}

// Goal: waiting for nothing is no wait, and all well is ok. Method: an empty set, then one of one.
TEST(OperationSet, EmptyIsDone) {
  NotedFlows noted;
  OperationSet none("loads");
  noted.flows.spawn("f", await_all(none));
  EXPECT_EQ(noted.flows.tick(), 1u);
  EXPECT_EQ(noted.flows.count(), 0u);
  OperationSet one("loads");
  Operation& operation = one.add();
  operation.start();
  operation.finish(Status());
  noted.flows.spawn("f", await_all(one));
  EXPECT_EQ(noted.flows.tick(), 1u);
  EXPECT_EQ(noted.flows.count(), 0u);
  EXPECT_TRUE(noted.failures.empty());
}

}  // namespace
}  // namespace zoffload
