// The depth tuner on drives that are a formula: speed as a function of depth, with noise by seed.
#include "tiers/depth_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/sim/random.h"

namespace zoffload {
namespace {

constexpr uint64_t kWindow = uint64_t{256} << 20;

// Full speed from `knee` on, in proportion to the depth below it.
std::function<double(uint32_t)> drive_with_knee(double knee) {
  return [knee](uint32_t depth) { return std::min(1.0, depth / knee); };
}

struct Outcome {
  uint32_t chosen_depth = 0;
  uint64_t trial_count = 0;  // windows at another depth than the chosen one
};

// Feeds `count` windows at whatever depth the tuner asks for; `noise` is a share of the speed.
Outcome run(DepthTuner& tuner, const std::function<double(uint32_t)>& speed, double noise,
            uint64_t seed, uint64_t count = 3000) {
  Random random(seed);
  Outcome result;
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t depth = tuner.depth();
    if (depth != tuner.chosen_depth()) ++result.trial_count;
    const double uniform = static_cast<double>(random.next() >> 11) * 0x1.0p-53;
    const double bytes_per_ns = 2.0 * speed(depth) * (1 + noise * (2 * uniform - 1));
    tuner.window(kWindow, static_cast<uint64_t>(static_cast<double>(kWindow) / bytes_per_ns));
  }
  result.chosen_depth = tuner.chosen_depth();
  return result;
}

// Goal: from any depth it finds the least one that has the speed, and stays. Method: knees and
// starts at powers of two, without noise; for a while, and a while more.
TEST(DepthTuner, FindsTheKnee) {
  for (uint32_t knee : {1u, 4u, 8u, 16u, 64u}) {
    for (uint32_t start : {4u, 8u, 32u, 64u}) {
      DepthTuner tuner(start, 64);
      const auto speed = drive_with_knee(knee);
      EXPECT_EQ(run(tuner, speed, 0, 1).chosen_depth, std::max(knee, 4u)) << knee << " " << start;
      EXPECT_EQ(run(tuner, speed, 0, 1).chosen_depth, std::max(knee, 4u)) << knee << " " << start;
    }
  }
}

// Goal: noise of a shared machine does not lead it far astray: never to a depth that costs more
// than a tenth of the speed. Method: 2 % of noise, 50 seeds.
TEST(DepthTuner, BearsNoise) {
  const auto speed = drive_with_knee(16);
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    DepthTuner tuner(32, 64);
    EXPECT_GE(speed(run(tuner, speed, 0.02, seed).chosen_depth), 0.9) << seed;
  }
}

// Goal: a drive that changes its ways is followed. Method: a knee at 8, then at 64.
TEST(DepthTuner, FollowsADriveThatChanges) {
  DepthTuner tuner(64, 64);
  EXPECT_EQ(run(tuner, drive_with_knee(8), 0, 1).chosen_depth, 8u);
  EXPECT_EQ(run(tuner, drive_with_knee(64), 0, 1).chosen_depth, 64u);
}

// Goal: a drive that slows down steadily favours neither depth: the order of the pairs alternates.
// Method: 1.5 % slower with every window, which is more than the loss that is allowed would be in
// each pair alone.
TEST(DepthTuner, DriftFavoursNobody) {
  DepthTuner tuner(16, 64);
  double factor = 1;
  for (int i = 0; i < 400; ++i) {
    const double bytes_per_ns = 100 * factor * std::min(1.0, tuner.depth() / 16.0);
    factor *= i % 20 == 0 ? 1.35 : 0.985;
    tuner.window(kWindow, static_cast<uint64_t>(static_cast<double>(kWindow) * 100 / bytes_per_ns));
  }
  EXPECT_EQ(tuner.chosen_depth(), 16u);
}

// Goal: trials take a few windows of a hundred, and stay within the limits. Method: count them;
// every depth asked for lies between 4 and the queue's.
TEST(DepthTuner, TrialsAreFewAndWithinLimits) {
  DepthTuner tuner(8, 24);
  uint32_t lowest = 24, highest = 0;
  const Outcome result = run(
      tuner,
      [&](uint32_t depth) {
        lowest = std::min(lowest, depth);
        highest = std::max(highest, depth);
        return std::min(1.0, depth / 24.0);
      },
      0, 1);
  EXPECT_EQ(result.chosen_depth, 24u);
  EXPECT_EQ(highest, 24u);
  EXPECT_GE(lowest, 4u);
  EXPECT_GT(result.trial_count, 10u);
  EXPECT_LE(result.trial_count, 3000u * 4 / 100);
}

// Goal: where there is nothing to choose it stays, without a trial. Method: limits that meet, and a
// start below 4.
TEST(DepthTuner, NothingToChoose) {
  DepthTuner four(4, 4);
  EXPECT_EQ(run(four, drive_with_knee(64), 0, 1).trial_count, 0u);
  EXPECT_EQ(four.chosen_depth(), 4u);
  DepthTuner one(1, 1);
  EXPECT_EQ(run(one, drive_with_knee(64), 0, 1).chosen_depth, 1u);
  DepthTuner two(2, 64);
  EXPECT_EQ(run(two, drive_with_knee(1), 0, 1).chosen_depth, 2u);
}

}  // namespace
}  // namespace zoffload
