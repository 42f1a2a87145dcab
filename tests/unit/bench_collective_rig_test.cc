#include <gtest/gtest.h>

#include "bench/collective_rig.h"

namespace zoffload::bench {
namespace {

// Goal: the bus factors are those of nccl-tests. Method: its formulas for 1, 2 and 8 ranks.
TEST(CollectiveRig, BusFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, 8), 7.0 / 8);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatter, 2), 1.0 / 2);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 8), 2 * 7.0 / 8);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 1), 0);
}

// Goal: every collective runs with any number of ranks at any size, also one that is no multiple of
// anything, several times in a row, in any order. Method: run them all; a difference between the
// ranks would be an error of the communicator.
TEST(CollectiveRig, RunsEveryCollectiveAtAnySize) {
  for (const uint32_t ranks : {1u, 2u, 3u}) {
    const auto rig = CollectiveRig::open(ranks, 100'000);
    ASSERT_TRUE(rig.ok()) << rig.status().to_string();
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{100}, uint64_t{99'999}, uint64_t{100'000}}) {
      for (const Collective collective :
           {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
          const auto time = (*rig)->run(collective, dtype, bytes, 3);
          ASSERT_TRUE(time.ok()) << time.status().to_string();
          EXPECT_EQ(time->done_count, 3u);
          EXPECT_GT(time->seconds, 0);
        }
      }
    }
  }
}

// Goal: the bytes that are reported are those that moved: equal whole elements for all ranks.
// Method: sizes beside the next multiple; never more than asked for unless that is less than one.
TEST(CollectiveRig, ExactBytes) {
  const auto rig = CollectiveRig::open(3, 1000);
  ASSERT_TRUE(rig.ok());
  EXPECT_EQ((*rig)->exact_bytes(Collective::kAllGather, 1000), 984u);
  EXPECT_EQ((*rig)->exact_bytes(Collective::kAllGather, 1), 24u);
  EXPECT_EQ((*rig)->exact_bytes(Collective::kAllReduce, 1000), 1000u);
  EXPECT_EQ((*rig)->exact_bytes(Collective::kAllReduce, 1007), 1000u);
}

// Goal: what cannot fit is refused before it is taken. Method: a size beyond any machine.
TEST(CollectiveRig, RefusesWhatDoesNotFit) {
  const auto rig = CollectiveRig::open(4, uint64_t{1} << 50);
  ASSERT_FALSE(rig.ok());
  EXPECT_EQ(rig.status().code(), Code::kOutOfMemory);
}

}  // namespace
}  // namespace zoffload::bench
