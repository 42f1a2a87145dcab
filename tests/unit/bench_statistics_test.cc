#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/histogram.h"
#include "bench/samples.h"
#include "bench/sustained.h"
#include "core/sim/random.h"

namespace zoffload::bench {
namespace {

// Goal: percentiles are at most 1.6 % above the truth and never below. Method: random values of all
// sizes, sorted, beside the histogram.
TEST(Histogram, PercentilesAgreeWithSortedValues) {
  Random random(1);
  std::vector<uint64_t> values;
  Histogram histogram;
  for (int i = 0; i < 5000; ++i) {
    values.push_back(random.next() >> random.below(64));
    histogram.add(values.back());
  }
  std::sort(values.begin(), values.end());
  EXPECT_EQ(histogram.count(), values.size());
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
  for (double share : {0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    const uint64_t truth = values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
    const uint64_t found = histogram.percentile(share);
    EXPECT_GE(found, truth) << share;
    EXPECT_LE(found - truth, truth / 64 + 1) << share;
  }
}

// Goal: every value has a cell. Method: both ends and the powers of two around them.
TEST(Histogram, TakesEveryValue) {
  for (int bit = 0; bit < 64; ++bit) {
    for (uint64_t value : {uint64_t{1} << bit, (uint64_t{1} << bit) - 1, ~uint64_t{0} >> bit}) {
      Histogram histogram;
      histogram.add(value);
      EXPECT_EQ(histogram.percentile(0.5), value);
    }
  }
  EXPECT_EQ(Histogram().percentile(0.5), 0u);
  EXPECT_EQ(Histogram().min(), 0u);
}

// Goal: parts that were counted apart are as if counted together. Method: compare both.
TEST(Histogram, Merges) {
  Histogram left, right, both;
  for (uint64_t value = 1; value < 1000; ++value) {
    (value % 3 == 0 ? left : right).add(value * value);
    both.add(value * value);
  }
  left.merge(right);
  left.merge(Histogram());
  for (double share : {0.1, 0.5, 0.99}) {
    EXPECT_EQ(left.percentile(share), both.percentile(share));
  }
  EXPECT_EQ(left.min(), 1u);
  EXPECT_EQ(left.count(), both.count());
}

// Goal: the figures are those of a textbook. Method: small sets worked by hand.
TEST(Samples, Figures) {
  const Samples samples = {{4, 1, 3, 2}};
  EXPECT_DOUBLE_EQ(samples.median(), 2.5);
  EXPECT_DOUBLE_EQ(samples.mean(), 2.5);
  EXPECT_DOUBLE_EQ(samples.stdev(), std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(samples.min(), 1);
  EXPECT_DOUBLE_EQ(samples.max(), 4);
  EXPECT_DOUBLE_EQ((Samples{{9, 1, 5}}).median(), 5);
  EXPECT_DOUBLE_EQ((Samples{{7}}).stdev(), 0);
  for (double figure : {Samples().median(), Samples().mean(), Samples().stdev(), Samples().max()}) {
    EXPECT_EQ(figure, 0);
  }
}

KneeFinder draw(const std::vector<uint64_t>& bytes_of_seconds) {
  KneeFinder knee;
  for (uint64_t bytes : bytes_of_seconds) knee.add(1, bytes);
  return knee;
}

// Goal: the knee is where three slow seconds begin, and both speeds are told. Method: a curve.
TEST(KneeFinder, FindsWhereTheSpeedFell) {
  const KneeFinder knee = draw({100, 100, 90, 100, 110, 100, 60, 60, 50, 50});
  ASSERT_TRUE(knee.found());
  EXPECT_EQ(*knee.knee_bytes(), 600u);
  EXPECT_DOUBLE_EQ(knee.early_bytes_per_s(), 100);
  EXPECT_DOUBLE_EQ(knee.sustained_bytes_per_s(), 55);
  EXPECT_EQ(knee.bytes(), 820u);
}

// Goal: a dip is no knee, nor is a slow start. Method: curves without one.
TEST(KneeFinder, IgnoresDips) {
  EXPECT_FALSE(draw({100, 100, 100, 100, 100, 60, 60, 100, 60, 60, 100}).found());
  EXPECT_FALSE(draw({10, 10, 10, 10, 10, 100, 100, 100, 100}).found());
  EXPECT_FALSE(draw({100, 100, 100, 100, 100, 71, 71, 71, 71, 71}).found());
  EXPECT_FALSE(draw({100, 60, 60, 60}).found());  // too early to know what early is
  EXPECT_FALSE(draw({}).found());
  EXPECT_EQ(draw({}).sustained_bytes_per_s(), 0);
}

}  // namespace
}  // namespace zoffload::bench
