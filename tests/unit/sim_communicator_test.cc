#include "core/sim/sim_communicator.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <functional>
#include <vector>

#include "core/base/bf16.h"

namespace zoffload {
namespace {

constexpr uint64_t kForever = ~uint64_t{0};
constexpr uint32_t kWorldSize = 3;

template <typename Element>
DeviceSpan device_span(std::vector<Element>& elements) {
  return DeviceSpan(reinterpret_cast<uintptr_t>(elements.data()),
                    elements.size() * sizeof(Element));
}

struct Rig {
  explicit Rig(const SimGroupOptions& options = {}, uint64_t seed = 1)
      : group(clock, kWorldSize, options, seed, &trace) {}

  uint32_t poll() {
    uint32_t delivered = 0;
    for (uint32_t rank = 0; rank < kWorldSize; ++rank) delivered += group.rank(rank).poll();
    return delivered;
  }
  void drain() {
    poll();
    while (!clock.idle()) {
      clock.doze(kForever);
      poll();
    }
  }

  SimClock clock;
  Trace trace{20};
  SimGroup group;
  std::deque<Completion> done{kWorldSize};
};

// Goal: an all-gather gives every rank every part, in rank order, in place and not.
// Method: rank 0 gathers in place, the others from memory apart.
TEST(SimGroup, AllGathers) {
  Rig rig;
  std::vector<std::vector<float>> all(kWorldSize, std::vector<float>(6));
  std::vector<std::vector<float>> own = {{}, {2, 3}, {4, 5}};
  all[0] = {0, 1, -1, -1, -1, -1};
  rig.group.rank(0).all_gather(7, device_span(all[0]).subspan(0, 8), device_span(all[0]),
                               rig.done[0]);
  for (uint32_t rank : {2, 1}) {
    EXPECT_TRUE(rig.clock.idle());  // nothing happens before all are there
    rig.group.rank(rank).all_gather(7, device_span(own[rank]), device_span(all[rank]),
                                    rig.done[rank]);
  }
  EXPECT_EQ(all[1][5], 0.0f);
  rig.drain();
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    EXPECT_EQ(rig.done[rank].bytes(), 24u);
    EXPECT_EQ(all[rank], (std::vector<float>{0, 1, 2, 3, 4, 5}));
  }
  EXPECT_FALSE(rig.group.mismatch());
}

// Goal: a reduce-scatter sums in fp32 in rank order, divides and rounds once; in place, the rest
// becomes NaN. Method: fp32 values whose sum depends on the order, in place.
TEST(SimGroup, ReduceScattersFloats) {
  Rig rig;
  const float big = 1e8f, small = 3.0f;
  // Each rank's value, the same at each place: (big + small) - big loses what big - big + small
  // would keep.
  const float value[] = {big, small, -big};
  std::vector<std::vector<float>> all;
  for (float v : value) all.push_back(std::vector<float>(kWorldSize * 2, v));
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    rig.group.rank(rank).reduce_scatter_mean(1, device_span(all[rank]),
                                             device_span(all[rank]).subspan(rank * 8, 8),
                                             DType::kFloat32, rig.done[rank]);
  }
  rig.drain();
  const float mean = ((big + small) + -big) / 3.0f;
  ASSERT_NE(mean, 1.0f);
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    ASSERT_TRUE(rig.done[rank].status().ok());
    for (uint32_t i = 0; i < kWorldSize * 2; ++i) {
      if (i / 2 == rank) {
        EXPECT_EQ(all[rank][i], mean);
      } else {
        EXPECT_TRUE(std::isnan(all[rank][i]));
      }
    }
  }
}

// Goal: bf16 is summed in fp32 and rounded once at the end; not in place, `all` keeps its values.
// Method: values whose bf16 partial sums would lose bits: 256 + 1 + 1 = 258, but in bf16 256 + 1 =
// 256.
TEST(SimGroup, ReduceScattersBf16WithOneRounding) {
  Rig rig;
  const float value[] = {256.0f, 1.0f, 1.0f};
  std::vector<std::vector<uint16_t>> all, own(kWorldSize, std::vector<uint16_t>(1));
  for (float v : value) all.push_back(std::vector<uint16_t>(kWorldSize, bf16_from_float(v)));
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    rig.group.rank(rank).reduce_scatter_mean(1, device_span(all[rank]), device_span(own[rank]),
                                             DType::kBFloat16, rig.done[rank]);
  }
  rig.drain();
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    ASSERT_TRUE(rig.done[rank].status().ok());
    EXPECT_EQ(own[rank][0], bf16_from_float(258.0f / 3.0f));
    EXPECT_EQ(float_from_bf16(all[rank][0]), value[rank]);
  }
}

// Goal: an all-reduce adds doubles in rank order, whatever the order of the calls.
// Method: values whose sum depends on the order; ranks call last to first.
TEST(SimGroup, AllReducesInRankOrder) {
  Rig rig;
  std::vector<std::vector<double>> values = {{1e17, 1}, {3, 2}, {-1e17, 3}};
  const double sum = (1e17 + 3) - 1e17;
  for (uint32_t rank : {2, 1, 0}) {
    rig.group.rank(rank).all_reduce_sum(1, values[rank], rig.done[rank]);
  }
  rig.drain();
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    ASSERT_TRUE(rig.done[rank].status().ok());
    EXPECT_EQ(values[rank], (std::vector<double>{sum, 6}));
  }
}

struct Mismatch {
  const char* name;
  std::function<void(Communicator&, std::vector<double>&, Completion&)> call;
};

class SimGroupMismatchTest : public testing::TestWithParam<Mismatch> {};

// Goal: a rank that brings another turn, kind, size or type fails everybody, and sets mismatch().
// Method: rank 0 reduces 3 doubles' bytes at turn 5; rank 1 brings something else; later calls fail
// too.
TEST_P(SimGroupMismatchTest, FailsEveryRank) {
  Rig rig;
  std::vector<double> a(3), b(6), c(3);
  rig.group.rank(0).reduce_scatter_mean(5, device_span(a), device_span(a).subspan(0, 8),
                                        DType::kFloat32, rig.done[0]);
  EXPECT_FALSE(rig.group.mismatch());
  GetParam().call(rig.group.rank(1), b, rig.done[1]);
  EXPECT_TRUE(rig.group.mismatch());
  rig.group.rank(2).all_reduce_sum(5, c, rig.done[2]);
  rig.drain();
  for (Completion& done : rig.done) EXPECT_EQ(done.status().code(), Code::kCommError);
}

void reduce(Communicator& rank, Turn turn, std::vector<double>& values, uint64_t own_bytes,
            DType dtype, Completion& done) {
  const DeviceSpan all = device_span(values).subspan(0, own_bytes * kWorldSize);
  rank.reduce_scatter_mean(turn, all, all.subspan(own_bytes, own_bytes), dtype, done);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, SimGroupMismatchTest,
    testing::Values(
        Mismatch{"turn", [](auto& rank, auto& v,
                            auto& done) { reduce(rank, 6, v, 8, DType::kFloat32, done); }},
        Mismatch{"kind",
                 [](auto& rank, auto& v, auto& done) {
                   const DeviceSpan all = device_span(v).subspan(0, 24);
                   rank.all_gather(5, all.subspan(8, 8), all, done);
                 }},
        Mismatch{"bytes", [](auto& rank, auto& v,
                             auto& done) { reduce(rank, 5, v, 16, DType::kFloat32, done); }},
        Mismatch{"dtype", [](auto& rank, auto& v,
                             auto& done) { reduce(rank, 5, v, 8, DType::kBFloat16, done); }}),
    [](const auto& info) { return info.param.name; });

// Goal: turns must rise on each rank.
// Method: death test with the same turn twice on one rank.
TEST(SimGroupDeathTest, TurnsMustRise) {
  Rig rig;
  std::vector<double> values(1);
  rig.group.rank(0).all_reduce_sum(5, values, rig.done[0]);
  EXPECT_DEATH(rig.group.rank(0).all_reduce_sum(5, values, rig.done[1]), "turns_begin_");
  rig.group.rank(0).abort(Status(Code::kTimeout, "over"));
  rig.drain();
}

// Goal: peers of a dead rank get kCommError after the timeout, not before; so does the dead rank;
// later calls fail. Method: kill rank 2 before it joins; look at the clock.
TEST(SimGroup, PeersNoticeADeath) {
  Rig rig({.timeout_ns = 90'000});
  std::vector<double> values(1);
  rig.group.kill(2);
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    rig.group.rank(rank).all_reduce_sum(1, values, rig.done[rank]);
  }
  rig.clock.doze(89'999);
  EXPECT_EQ(rig.poll(), 0u);
  rig.clock.doze(kForever);
  EXPECT_EQ(rig.clock.now_ns(), 90'000u);
  EXPECT_EQ(rig.poll(), kWorldSize);
  for (Completion& done : rig.done) {
    EXPECT_EQ(done.status().code(), Code::kCommError);
    EXPECT_NE(done.status().message().find("rank 2"), std::string::npos);
  }
  EXPECT_FALSE(rig.group.mismatch());
  rig.group.rank(0).all_reduce_sum(2, values, rig.done[0]);
  rig.poll();
  EXPECT_EQ(rig.done[0].status().code(), Code::kCommError);
}

// Goal: abort() ends what waits and what was about to end, on every rank, once, with the reason.
// Method: one collective that all joined and one that rank 0 alone did; abort on rank 2; memory
// stays as it was.
TEST(SimGroup, AbortWakesEverybody) {
  Rig rig;
  std::vector<std::vector<double>> values(kWorldSize, {1.0});
  Completion alone;
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    rig.group.rank(rank).all_reduce_sum(1, values[rank], rig.done[rank]);
  }
  std::vector<double> more(1);
  rig.group.rank(0).all_reduce_sum(2, more, alone);
  rig.group.rank(2).abort(Status(Code::kIoError, "the disk is gone"));
  rig.drain();
  for (Completion* done : {&rig.done[0], &rig.done[1], &rig.done[2], &alone}) {
    EXPECT_EQ(done->status().code(), Code::kCommError);
    EXPECT_NE(done->status().message().find("the disk is gone"), std::string::npos);
  }
  EXPECT_EQ(values[0][0], 1.0);
}

// Goal: abort() also ends, once, what some ranks have already seen the end of.
// Method: wait for the first of three completions that end at different times, then abort.
TEST(SimGroup, AbortAmidTheEnds) {
  Rig rig({.any_order = true});
  std::vector<std::vector<double>> values(kWorldSize, {1.0});
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    rig.group.rank(rank).all_reduce_sum(1, values[rank], rig.done[rank]);
  }
  while (rig.poll() == 0) rig.clock.doze(kForever);
  rig.group.rank(0).abort(Status(Code::kIoError, "the disk is gone"));
  rig.drain();
  uint32_t ok_count = 0;
  for (const Completion& done : rig.done) ok_count += done.status().ok();
  EXPECT_EQ(ok_count, 1u);
}

struct Outcome {
  uint64_t hash;
  bool in_order;
};

// 20 collectives started together on every rank; whether they ended in order.
Outcome run(bool any_order, uint64_t seed) {
  Rig rig({.any_order = any_order}, seed);
  std::vector<std::vector<double>> values(20, std::vector<double>(kWorldSize, 1.0));
  std::deque<Completion> done(20 * kWorldSize);
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    for (uint32_t i = 0; i < 20; ++i) {
      rig.group.rank(rank).all_reduce_sum(i, std::span(values[i]).subspan(rank, 1),
                                          done[i * kWorldSize + rank]);
    }
  }
  bool in_order = true;
  while (!rig.clock.idle()) {
    rig.clock.doze(kForever);
    rig.poll();
    for (size_t i = 1; i < done.size(); ++i) {
      if (done[i].done() && !done[i - 1].done()) in_order = false;
    }
  }
  for (const auto& sums : values) EXPECT_EQ(sums, std::vector<double>(kWorldSize, 3.0));
  return {rig.trace.hash(), in_order};
}

// Goal: collectives overtake each other only on request, and a run is a function of its seed.
// Method: runs with and without any_order, of two seeds.
TEST(SimGroup, OrderAndTraceFollowTheSeed) {
  EXPECT_TRUE(run(false, 1).in_order);
  EXPECT_FALSE(run(true, 1).in_order);
  EXPECT_EQ(run(true, 1).hash, run(true, 1).hash);
  EXPECT_NE(run(true, 1).hash, run(true, 2).hash);
}

}  // namespace
}  // namespace zoffload
