// The parts that every simulated port stands on: chance, time, the trace, and the operations in
// flight.
#include "core/sim/sim_clock.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/sim/in_flight.h"
#include "core/sim/random.h"
#include "core/sim/trace.h"

namespace zoffload {
namespace {

constexpr uint64_t kForever = std::numeric_limits<uint64_t>::max();

// Goal: the same seed gives the same numbers, another seed others, for ever: seeds are kept in bug
// reports. Method: the published first output of splitmix64 for seed 0, and two generators side by
// side.
TEST(Random, IsAFunctionOfItsSeed) {
  EXPECT_EQ(Random(0).next(), 0xe220a8397b1dcdafu);
  Random a(7), b(7), c(8);
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), c.next());
}

// Goal: a fork does not depend on what was drawn before, and differs from its siblings and its
// parent. Method: fork before and after a draw; compare first numbers.
TEST(Random, ForksAreIndependent) {
  Random parent(7);
  const uint64_t before = parent.fork(1).next();
  parent.next();
  EXPECT_EQ(parent.fork(1).next(), before);
  std::set<uint64_t> firsts = {before, Random(7).next()};
  for (uint64_t tag : {0, 2, 3}) firsts.insert(parent.fork(tag).next());
  EXPECT_EQ(firsts.size(), 5u);
}

// Goal: below() covers exactly its range; chance() hits as often as asked, never at 0 and always
// at 1. Method: counts over many draws of one seed, so the result is always the same.
TEST(Random, RangesAndOdds) {
  Random random(1);
  std::vector<int> counts(5);
  for (int i = 0; i < 5000; ++i) ++counts.at(random.below(5));
  for (int count : counts) EXPECT_NEAR(count, 1000, 150);
  int hits = 0;
  for (int i = 0; i < 5000; ++i) {
    hits += random.chance(0.2);
    EXPECT_FALSE(random.chance(0.0));
    EXPECT_TRUE(random.chance(1.0));
  }
  EXPECT_NEAR(hits, 1000, 150);
}

// Goal: chance() draws at odds of 0 too, so that switching a fault off does not move the others.
// Method: two generators, one asked with odds 0 where the other is asked with 1.
TEST(Random, ChanceAlwaysDraws) {
  Random a(3), b(3);
  EXPECT_NE(a.chance(0.0), b.chance(1.0));
  EXPECT_EQ(a.next(), b.next());
}

// Goal: dozing jumps to the next event, never past the limit, and runs events in order of time,
// then insertion. Method: events that write their name into a string.
TEST(SimClock, RunsEventsInOrder) {
  SimClock clock;
  std::string order;
  clock.at(20, [&] { order += 'c'; });
  clock.at(10, [&] { order += 'a'; });
  clock.at(10, [&] { order += 'b'; });
  EXPECT_EQ(clock.next_event_ns(), 10u);

  clock.doze(5);
  EXPECT_EQ(clock.now_ns(), 5u);
  EXPECT_EQ(order, "");
  clock.doze(100);
  EXPECT_EQ(clock.now_ns(), 10u);
  EXPECT_EQ(order, "ab");
  clock.doze(10);
  EXPECT_EQ(order, "abc");
  EXPECT_TRUE(clock.idle());
  EXPECT_EQ(clock.next_event_ns(), std::nullopt);
  clock.doze(7);
  EXPECT_EQ(clock.now_ns(), 27u);
}

// Goal: time is not lost or wrapped at the far end.
// Method: doze for ever from a moment that is not 0.
TEST(SimClock, SaturatesAtTheEndOfTime) {
  SimClock clock;
  clock.doze(9);
  clock.doze(kForever);
  EXPECT_EQ(clock.now_ns(), kForever);
}

// Goal: an event may add events for this very moment (they run in the same doze) and may drop those
// of an owner. Method: an event that does both.
TEST(SimClock, EventsMayAddAndForget) {
  SimClock clock;
  int owner = 0;
  std::string order;
  clock.at(10, [&] {
    clock.at(10, [&] { order += 'b'; });
    clock.forget(&owner);
    order += 'a';
  });
  clock.at(
      10, [&] { order += 'x'; }, &owner);
  clock.at(
      11, [&] { order += 'y'; }, &owner);
  clock.doze(kForever);
  EXPECT_EQ(order, "ab");
  EXPECT_TRUE(clock.idle());
}

// Goal: there are no events in the past.
// Method: death test.
TEST(SimClockDeathTest, RefusesThePast) {
  SimClock clock;
  clock.doze(10);
  EXPECT_DEATH(clock.at(9, [] {}), "when_ns >= now_ns_");
}

// Goal: the hash depends on every time, every line and their borders.
// Method: pairs of traces that differ in one of them.
TEST(Trace, HashSeesEverything) {
  const auto hash = [](std::vector<std::pair<uint64_t, std::string>> lines) {
    Trace trace;
    for (const auto& [time_ns, line] : lines) trace.record(time_ns, line);
    EXPECT_EQ(trace.count(), lines.size());
    return trace.hash();
  };
  const uint64_t one = hash({{1, "ab"}, {2, "c"}});
  EXPECT_EQ(one, hash({{1, "ab"}, {2, "c"}}));
  EXPECT_NE(one, hash({{1, "ab"}, {3, "c"}}));
  EXPECT_NE(one, hash({{1, "a"}, {2, "bc"}}));
  EXPECT_NE(one, hash({{2, "c"}, {1, "ab"}}));
  EXPECT_NE(one, hash({{1, "ab"}}));
}

// Goal: the last lines are kept, and no more than asked for.
// Method: three lines into a trace that keeps two, and into one that keeps none.
TEST(Trace, KeepsTheLastLines) {
  Trace trace(2), forgetful;
  for (uint64_t i = 1; i <= 3; ++i) {
    trace.record(i, "line");
    forgetful.record(i, "line");
  }
  EXPECT_EQ(trace.text(), "2 line\n3 line\n");
  EXPECT_EQ(forgetful.text(), "");
  EXPECT_EQ(trace.hash(), forgetful.hash());
}

// Goal: an operation is delivered by poll() alone, in order of end, and both ends are in the trace.
// Method: two operations that end the other way round.
TEST(InFlight, DeliversAtPollInOrderOfEnd) {
  SimClock clock;
  Trace trace(9);
  InFlight operations("port", clock, &trace);
  Completion first, second;
  const auto first_id = operations.start("work", first);
  const auto second_id = operations.start("work", second);
  operations.end(second_id, Status(), 5);
  EXPECT_TRUE(operations.running(first_id));
  EXPECT_FALSE(operations.running(second_id));
  EXPECT_TRUE(second.pending());
  EXPECT_EQ(operations.count(), 2u);

  EXPECT_EQ(operations.poll(), 1u);
  EXPECT_EQ(second.bytes(), 5u);
  EXPECT_TRUE(first.pending());
  operations.end_all(Status(Code::kTimeout, "late"));
  EXPECT_EQ(operations.poll(), 1u);
  EXPECT_EQ(first.status().code(), Code::kTimeout);
  EXPECT_EQ(operations.count(), 0u);
  EXPECT_EQ(trace.text(),
            "0 port start 0 work\n0 port start 1 work\n0 port end 1 5 ok\n"
            "0 port end 0 0 kTimeout: late\n");
}

// Goal: events of a port that is gone never run.
// Method: destroy the port before its event.
TEST(InFlight, TakesItsEventsAlong) {
  SimClock clock;
  bool ran = false;
  {
    InFlight("port", clock, nullptr).at(10, [&] { ran = true; });
  }
  EXPECT_TRUE(clock.idle());
  clock.doze(20);
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace zoffload
