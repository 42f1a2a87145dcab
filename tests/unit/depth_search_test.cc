#include "core/plan/depth_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace zoffload {
namespace {

using Drive = std::function<double(uint32_t depth)>;  // bytes per second

struct Found {
  uint32_t depth = 0;
  double bytes_per_s = 0;
  std::vector<uint32_t> measured;
};

Found search(const Drive& drive, DepthSearch::Options options = {}) {
  DepthSearch search(options);
  Found found;
  while (!search.done()) {
    const uint32_t depth = search.next_depth();
    found.measured.push_back(depth);
    const double rate = drive(depth);
    search.report(uint64_t{1} << 30, static_cast<uint64_t>(0x1p30 * 1e9 / rate));
  }
  found.depth = search.best();
  found.bytes_per_s = search.bytes_per_s();
  return found;
}

// Every request takes the same time until `knee` of them use all there is.
Drive saturating(uint32_t knee) {
  return [knee](uint32_t depth) { return 1e8 * std::min(depth, knee); };
}

// Goal: the knee is found wherever it is, with the bandwidth there. Method: exact drives with each
// knee, on the powers of two and between them.
TEST(DepthSearch, StopsAtTheKnee) {
  for (uint32_t knee : {1, 2, 4, 8, 16, 32, 64}) {
    const Found found = search(saturating(knee));
    EXPECT_EQ(found.depth, knee);
    EXPECT_NEAR(found.bytes_per_s, 1e8 * knee, 1e3);
  }
  EXPECT_EQ(search(saturating(11)).depth, 16u);
  EXPECT_EQ(search(saturating(200)).depth, 64u);  // the deepest there is
}

// Goal: a gain under the threshold is no reason to go deeper, one above it is. Method: drives that
// gain a little with every doubling.
TEST(DepthSearch, ThresholdDecides) {
  const auto rising = [](double gain) {
    return [gain](uint32_t depth) { return 1e9 * std::pow(gain, std::log2(depth)); };
  };
  EXPECT_EQ(search(rising(1.03)).depth, 1u);
  EXPECT_EQ(search(rising(1.04)).depth, 64u);  // twice the depth is not worth it, four times is
  EXPECT_EQ(search(rising(1.06)).depth, 64u);
  EXPECT_EQ(search(rising(1.06), {.gain = 1.1}).depth, 1u);
}

// Goal: on a drive that depth does not help, or slows, the shallowest queue is chosen and the deep
// ones are never tried. Method: a flat and a falling curve.
TEST(DepthSearch, FlatAndFallingDrivesStayShallow) {
  const Found flat = search([](uint32_t) { return 2e9; });
  EXPECT_EQ(flat.depth, 1u);
  EXPECT_EQ(*std::max_element(flat.measured.begin(), flat.measured.end()), 4u);
  const Found falling = search([](uint32_t depth) { return 2e9 / depth; }, {.depth_min = 4});
  EXPECT_EQ(falling.depth, 4u);
  EXPECT_EQ(*std::max_element(falling.measured.begin(), falling.measured.end()), 16u);
}

// Goal: noise neither stops the search far below the knee nor carries it far beyond. Method: 500
// seeds, each measurement off by a deviation of 5 % and every tenth one halved by a neighbour.
TEST(DepthSearch, NoiseMovesTheChoiceLittle) {
  constexpr uint32_t kKnee = 16;
  uint32_t exact = 0;
  uint32_t far = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(1, 0.05);
    const Drive drive = saturating(kKnee);
    const Found found = search([&](uint32_t depth) {
      const double share = random() % 10 == 0 ? 0.5 : 1;
      return drive(depth) * std::max(0.2, noise(random)) * share;
    });
    exact += found.depth == kKnee;
    far += found.depth < kKnee / 2 || found.depth > kKnee * 2;
  }
  EXPECT_GE(exact, 360u);
  EXPECT_LE(far, 55u);
}

// Goal: a disk that slows down, as one whose cache fills, or that speeds up, has no say in the
// choice. Method: every measurement differs by 8 % from the one before.
TEST(DepthSearch, DriftDoesNotDecide) {
  for (double drift : {0.92, 1.08}) {
    double speed = 1;
    const Drive drive = saturating(8);
    const Found found = search([&](uint32_t depth) {
      speed *= drift;
      return drive(depth) * speed;
    });
    EXPECT_EQ(found.depth, 8u) << drift;
  }
}

// Goal: the order within a round alternates, and what is plain is not measured more often than it
// needs. Method: the depths asked for on a flat drive, and on one that two requests fill.
TEST(DepthSearch, OrderAlternates) {
  EXPECT_EQ(search(saturating(2)).measured,
            (std::vector<uint32_t>{1, 2, 2, 1, 2, 4, 4, 2, 2, 4, 4, 2, 2, 8, 8, 2, 2, 8, 8, 2}));
  EXPECT_EQ(search([](uint32_t) { return 1e9; }).measured,
            (std::vector<uint32_t>{1, 2, 2, 1, 1, 2, 2, 1, 1, 4, 4, 1, 1, 4, 4, 1}));
}

// Goal: limits that are no powers of two, and equal ones, work; the choice is good at any time.
// Method: such limits, and a search that is left half way.
TEST(DepthSearch, LimitsAndEarlyEnd) {
  EXPECT_EQ(search(saturating(1000), {.depth_min = 3, .depth_max = 60}).depth, 60u);
  const Found none = search(saturating(8), {.depth_min = 5, .depth_max = 5});
  EXPECT_EQ(none.depth, 5u);
  EXPECT_TRUE(none.measured.empty());

  DepthSearch early({.depth_min = 2});
  EXPECT_EQ(early.best(), 2u);
  EXPECT_EQ(early.bytes_per_s(), 0);
  for (uint64_t bytes : {200, 400, 400, 200}) early.report(bytes, 1000);
  EXPECT_EQ(early.best(), 4u);
  early.report(400, 1000);  // half a round
  EXPECT_EQ(early.best(), 4u);
  EXPECT_NEAR(early.bytes_per_s(), 4e8, 1);
}

}  // namespace
}  // namespace zoffload
