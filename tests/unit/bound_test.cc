#include "core/plan/bound.h"

#include <gtest/gtest.h>

namespace zoffload {
namespace {

// Goal: the formula of a drive between half and full duplex. Method: numbers that are easy to work
// out: 200 bytes at 100/s take 2 s, 100 bytes at 50/s take 2 s.
TEST(Bound, DiskFollowsTheMixedRate) {
  EXPECT_DOUBLE_EQ(disk_seconds(200, 100, {100, 50, 0}), 4);  // nothing known: half duplex
  // A byte each way takes 0.03 s at half duplex and 0.02 s at full duplex.
  EXPECT_DOUBLE_EQ(disk_seconds(200, 100, {100, 50, 2 / 0.03}), 4);
  EXPECT_DOUBLE_EQ(disk_seconds(200, 100, {100, 50, 2 / 0.02}), 2);
  EXPECT_DOUBLE_EQ(disk_seconds(200, 100, {100, 50, 2 / 0.025}), 3);
  EXPECT_DOUBLE_EQ(disk_seconds(200, 0, {100, 50, 2 / 0.02}), 2);
}

// Goal: rates that cannot be do no harm, and no rate is no bound. Method: a mixed rate outside of
// what half and full duplex allow; a mixed rate alone; nothing.
TEST(Bound, DiskTakesWhatIsKnown) {
  EXPECT_DOUBLE_EQ(disk_seconds(200, 100, {100, 50, 10}), 4);
  EXPECT_DOUBLE_EQ(disk_seconds(200, 100, {100, 50, 1000}), 2);
  EXPECT_DOUBLE_EQ(disk_seconds(200, 100, {0, 0, 100}), 3);
  EXPECT_DOUBLE_EQ(disk_seconds(200, 100, {}), 0);
}

// Goal: the profile's link and memory are used. Method: a profile with those three figures.
TEST(Bound, RatesComeFromTheProfile) {
  Profile profile;
  profile.link = {25e9, 24e9, 40e9};
  profile.memory_bytes_per_s = 50e9;
  const ResourceRates rates = rates_of(profile);
  EXPECT_EQ(rates.to_device, 25e9);
  EXPECT_EQ(rates.to_host, 24e9);
  EXPECT_EQ(rates.memory, 50e9);
}

}  // namespace
}  // namespace zoffload
