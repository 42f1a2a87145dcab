#include "core/engine/step_trace.h"

#include <gtest/gtest.h>

namespace zoffload {
namespace {

StepTrace::Event event(uint64_t begin_ns, uint64_t end_ns) {
  return {0, begin_ns, end_ns, 0, StepTrace::Name("load ", "x")};
}

// Goal: memory is bounded, and what did not fit is counted. Method: five events for room of three;
// taking them makes room again.
TEST(StepTrace, CountsWhatItDrops) {
  StepTrace trace;
  trace.start(0, 3);
  for (uint64_t i = 0; i < 5; ++i) trace.add(event(i, i + 1));
  EXPECT_EQ(trace.dropped_count(), 2u);
  EXPECT_EQ(trace.take().size(), 3u);
  trace.add(event(7, 8));
  EXPECT_EQ(trace.take().size(), 1u);
  EXPECT_EQ(trace.dropped_count(), 2u);
}

// Goal: nothing lies before the beginning. Method: an event across it is cut, one before it is left
// out.
TEST(StepTrace, BeginsWhenItStarts) {
  StepTrace trace;
  trace.start(100, 3);
  trace.add(event(50, 90));
  trace.add(event(50, 150));
  const auto events = trace.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].begin_ns, 100u);
  EXPECT_EQ(events[0].end_ns, 150u);
}

// Goal: names of any length are legal. Method: one of 200 characters keeps its beginning.
TEST(StepTrace, CutsLongNames) {
  EXPECT_EQ(StepTrace::Name("load ", "exp_avg").text(), "load exp_avg");
  const StepTrace::Name name("load ", std::string(200, 'x'));
  EXPECT_EQ(name.text().substr(0, 7), "load xx");
  EXPECT_LT(name.text().size(), 100u);
}

}  // namespace
}  // namespace zoffload
