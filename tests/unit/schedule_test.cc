#include "core/plan/schedule.h"

#include <gtest/gtest.h>

namespace zoffload {
namespace {

using Order = std::vector<BucketId>;

void pass(ScheduleBook& book, uint64_t signature, const Order& accesses) {
  book.begin(signature);
  for (BucketId bucket : accesses) book.access(bucket);
  book.end();
}

// Goal: the first pass knows nothing; the second looks ahead, distinct buckets only, up to the end.
// Method: forward and backward over three buckets.
TEST(Schedule, SecondPassLooksAhead) {
  ScheduleBook book;
  book.begin(1);
  book.access(0);
  EXPECT_TRUE(book.upcoming(3).empty());
  EXPECT_TRUE(book.first_use_order().empty());
  for (BucketId bucket : {1, 2, 2, 1, 0}) book.access(bucket);
  book.begin(1);  // ends the first
  EXPECT_EQ(book.upcoming(2), (Order{0, 1}));
  book.access(0);
  EXPECT_EQ(book.upcoming(1), (Order{1}));
  EXPECT_EQ(book.upcoming(3), (Order{1, 2, 0}));  // 2 and 1 are asked for twice, listed once
  EXPECT_TRUE(book.upcoming(0).empty());
  for (BucketId bucket : {1, 2, 2, 1, 0}) book.access(bucket);
  EXPECT_TRUE(book.upcoming(3).empty());
  EXPECT_EQ(book.deviation_count(), 0u);
}

// Goal: a deviation is counted, falls back to demand, and costs the old schedule nothing. Method:
// deviate once, then do as before.
TEST(Schedule, DeviationFallsBackToDemand) {
  ScheduleBook book;
  pass(book, 1, {0, 1, 2});
  book.begin(1);
  book.access(0);
  book.access(5);
  EXPECT_TRUE(book.upcoming(3).empty());
  EXPECT_EQ(book.deviation_count(), 1u);
  book.access(1);
  EXPECT_TRUE(book.upcoming(3).empty());
  EXPECT_EQ(book.deviation_count(), 1u);  // counted once: there is nothing left to deviate from
  book.begin(1);
  book.access(0);
  EXPECT_EQ(book.upcoming(3), (Order{5, 1}));  // the order that ended last is the one followed
  book.access(1);
  EXPECT_EQ(book.upcoming(3), (Order{2}));  // ... until it deviates to one that is known
  EXPECT_EQ(book.deviation_count(), 2u);
}

// Goal: each signature has schedules of its own. Method: the same first bucket, two continuations.
TEST(Schedule, SignaturesDoNotMix) {
  ScheduleBook book;
  pass(book, 1, {0, 1, 2});
  pass(book, 2, {0, 3});
  book.begin(1);
  book.access(0);
  EXPECT_EQ(book.upcoming(3), (Order{1, 2}));
  book.access(3);  // known, but of the other signature
  EXPECT_TRUE(book.upcoming(3).empty());
  book.begin(2);
  book.access(0);
  EXPECT_EQ(book.upcoming(3), (Order{3}));
  book.begin(3);
  EXPECT_TRUE(book.upcoming(3).empty());
}

// Goal: a pass that was broken off does not spoil those after it. Method: half a pass, then whole
// ones: the first of them deviates once at the break, the next not at all.
TEST(Schedule, RecoversFromATruncatedPass) {
  ScheduleBook book;
  pass(book, 1, {0, 1, 2, 1, 0});
  pass(book, 1, {0, 1});
  book.begin(1);
  book.access(0);
  book.access(1);
  EXPECT_TRUE(book.upcoming(3).empty());  // as the broken one, which ended last
  book.access(2);
  EXPECT_EQ(book.upcoming(3), (Order{1, 0}));
  EXPECT_EQ(book.deviation_count(), 1u);
  book.access(1);
  book.access(0);
  pass(book, 1, {0, 1, 2, 1, 0});
  EXPECT_EQ(book.deviation_count(), 1u);
}

// Goal: the order of the updates: first uses of the pass that ended last, an open one not counted.
// Method: ask before and after it ends; an empty pass leaves no trace.
TEST(Schedule, FirstUseOrder) {
  ScheduleBook book;
  pass(book, 1, {2, 0, 2, 1});
  EXPECT_EQ(book.first_use_order(), (Order{2, 0, 1}));
  book.begin(1);
  book.access(1);
  EXPECT_EQ(book.first_use_order(), (Order{2, 0, 1}));
  book.end();
  EXPECT_EQ(book.first_use_order(), (Order{1}));
  pass(book, 1, {});
  EXPECT_EQ(book.first_use_order(), (Order{1}));
}

// Goal: a fixed number of schedules; the one that ended longest ago goes. Method: sixteen fit; the
// seventeenth drives out the first that was not used again.
TEST(Schedule, ForgetsTheOldest) {
  ScheduleBook book;
  for (BucketId i = 0; i < 16; ++i) pass(book, i, {i, 100});
  for (int i = 0; i < 20; ++i) pass(book, 0, {0, 100});  // one schedule; now 1 is the oldest
  for (BucketId i = 0; i < 16; ++i) {
    ScheduleBook copy = book;
    copy.begin(i);
    EXPECT_EQ(copy.upcoming(2), (Order{i, 100})) << i;
  }
  pass(book, 16, {16, 100});
  book.begin(1);
  EXPECT_TRUE(book.upcoming(2).empty());
  book.begin(0);
  EXPECT_EQ(book.upcoming(2), (Order{0, 100}));
}

// Goal: equal orders, equal hashes; other orders, others. Method: compare, the number of accesses
// and their order included. Without begin() a pass opens by itself.
TEST(Schedule, HashDependsOnTheOrder) {
  const auto hash = [](const Order& accesses) {
    ScheduleBook book;
    for (BucketId bucket : accesses) book.access(bucket);
    return book.hash();
  };
  EXPECT_EQ(hash({0, 1, 2}), hash({0, 1, 2}));
  EXPECT_NE(hash({0, 1, 2}), hash({0, 2, 1}));
  EXPECT_NE(hash({0, 1}), hash({0, 1, 0}));
  EXPECT_NE(hash({0, 1}) >> 32, hash({1, 0}) >> 32);  // the half that the ranks compare
}

}  // namespace
}  // namespace zoffload
