// What every Communicator promises, over a table of communicators whose ranks all live in this
// process. The oracle is the arithmetic of core/ports/communicator.h, written out here.
#include "core/ports/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/in_process.h"
#include "core/base/bf16.h"
#include "cuda/host_device.h"
#include "tests/conformance/sim_factories.h"

namespace zoffload {
namespace {

using Ranks = std::vector<std::unique_ptr<Communicator>>;

struct CommunicatorRow {
  const char* name;
  Ranks (*make)(uint32_t world_size, Device& device);
  bool on_threads;  // each rank may be driven from a thread of its own
};

Ranks make_in_process(uint32_t world_size, Device& device) {
  InProcessGroup group(world_size);
  Ranks ranks;
  for (uint32_t rank = 0; rank < world_size; ++rank) ranks.push_back(group.rank(rank, device));
  return ranks;
}

const CommunicatorRow kCommunicatorRows[] = {{"in_process", make_in_process, true},
                                             {"sim", make_sim_ranks, false}};

// For ranks on threads: lets the other ranks have the core between two polls.
void poll_until_done(Communicator& communicator, const Completion& completion) {
  while (completion.pending()) {
    if (communicator.poll() == 0) std::this_thread::yield();
  }
}

class CommunicatorTest : public testing::TestWithParam<CommunicatorRow> {
 protected:
  void open(uint32_t world_size) {
    ranks_.clear();
    ranks_ = GetParam().make(world_size, device_);
  }
  DeviceSpan hbm(uint64_t bytes) { return device_.allocate_hbm(bytes).value(); }
  template <typename T>
  std::span<T> view(DeviceSpan span) {
    return elements<T>(device_.host_view(span));
  }

  // Polls every rank until all are done.
  void wait(const std::vector<Completion>& completions) {
    const auto done = [](const Completion& completion) { return !completion.pending(); };
    for (int polls = 0; polls < 100'000; ++polls) {
      if (std::ranges::all_of(completions, done)) return;
      for (auto& rank : ranks_) rank->poll();
    }
    FAIL() << "a collective never ended";
  }

  HostDevice device_;
  Ranks ranks_;
};

// Goal: every rank ends with all parts in rank order, from an `own` elsewhere or in place. Method:
// distinct bytes for each rank, world sizes 1 to 4.
TEST_P(CommunicatorTest, AllGather) {
  for (uint32_t world_size : {1u, 2u, 3u, 4u}) {
    for (const bool in_place : {false, true}) {
      open(world_size);
      std::vector<DeviceSpan> alls;
      std::vector<Completion> completions(world_size);
      for (uint32_t rank = 0; rank < world_size; ++rank) {
        alls.push_back(hbm(world_size * 1000));
        const DeviceSpan own = in_place ? alls[rank].subspan(rank * 1000, 1000) : hbm(1000);
        std::ranges::fill(view<uint8_t>(own), static_cast<uint8_t>(rank + 1));
        ranks_[rank]->all_gather(1, own, alls[rank], completions[rank]);
      }
      wait(completions);
      for (uint32_t rank = 0; rank < world_size; ++rank) {
        EXPECT_TRUE(completions[rank].status().ok()) << completions[rank].status().to_string();
        EXPECT_EQ(ranks_[rank]->rank(), rank);
        EXPECT_EQ(ranks_[rank]->world_size(), world_size);
        for (size_t i = 0; i < world_size * 1000; ++i) {
          ASSERT_EQ(view<uint8_t>(alls[rank])[i], i / 1000 + 1);
        }
      }
    }
  }
}

// Goal: the mean has the documented bits: fp32 sums in rank order, one division, one rounding.
// Method: random values of very different size, so that another order gives other bits; both
// dtypes, in place and not, world sizes 1 to 5.
TEST_P(CommunicatorTest, ReduceScatterMeanIsExact) {
  constexpr size_t kNumel = 257;  // of one rank's part
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-6, 6);
  for (uint32_t world_size : {1u, 2u, 3u, 4u, 5u}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const bool in_place : {false, true}) {
        open(world_size);
        const uint64_t part = kNumel * dtype_bytes(dtype);
        std::vector<std::vector<float>> values(world_size);
        std::vector<DeviceSpan> owns;
        std::vector<Completion> completions(world_size);
        for (uint32_t rank = 0; rank < world_size; ++rank) {
          const DeviceSpan all = hbm(world_size * part);
          for (size_t i = 0; i < world_size * kNumel; ++i) {
            float value = std::pow(10.0f, exponent(random)) * (random() % 2 == 0 ? 1 : -1);
            if (dtype == DType::kBFloat16) value = float_from_bf16(bf16_from_float(value));
            values[rank].push_back(value);
            if (dtype == DType::kFloat32) view<float>(all)[i] = value;
            if (dtype == DType::kBFloat16) view<uint16_t>(all)[i] = bf16_from_float(value);
          }
          owns.push_back(in_place ? all.subspan(rank * part, part) : hbm(part));
          ranks_[rank]->reduce_scatter_mean(1, all, owns[rank], dtype, completions[rank]);
        }
        wait(completions);
        for (uint32_t rank = 0; rank < world_size; ++rank) {
          ASSERT_TRUE(completions[rank].status().ok());
          for (size_t i = 0; i < kNumel; ++i) {
            float sum = values[0][rank * kNumel + i];
            for (uint32_t k = 1; k < world_size; ++k) sum += values[k][rank * kNumel + i];
            const float mean = sum / static_cast<float>(world_size);
            if (dtype == DType::kFloat32) {
              ASSERT_EQ(view<float>(owns[rank])[i], mean);
            } else {
              ASSERT_EQ(view<uint16_t>(owns[rank])[i], bf16_from_float(mean));
            }
          }
        }
      }
    }
  }
}

// Goal: sums of doubles are added in rank order and equal on every rank. Method: values of which
// every other order gives another sum.
TEST_P(CommunicatorTest, AllReduceSumIsExact) {
  open(3);
  const std::vector<double> parts[3] = {{1e16, 1}, {1.0, 2}, {-1e16, 3}};
  std::vector<std::vector<double>> values(std::begin(parts), std::end(parts));
  std::vector<Completion> completions(3);
  for (int rank = 2; rank >= 0; --rank) {
    ranks_[rank]->all_reduce_sum(1, values[rank], completions[rank]);
  }
  wait(completions);
  const std::vector<double> expected = {(1e16 + 1.0) + -1e16, 6};
  for (const auto& value : values) EXPECT_EQ(value, expected);
}

// Goal: a collective ends only when every rank brought its part, and only from poll(). Method:
// bring one of two; then the other.
TEST_P(CommunicatorTest, WaitsForEveryRank) {
  open(2);
  std::vector<double> values[2] = {{1}, {2}};
  std::vector<Completion> completions(2);
  ranks_[0]->all_reduce_sum(1, values[0], completions[0]);
  for (int polls = 0; polls < 1000; ++polls) ASSERT_EQ(ranks_[0]->poll() + ranks_[1]->poll(), 0u);
  ranks_[1]->all_reduce_sum(1, values[1], completions[1]);
  EXPECT_TRUE(completions[0].pending());
  EXPECT_TRUE(completions[1].pending());
  wait(completions);
  EXPECT_EQ(values[0][0], 3);
}

// Goal: several collectives in flight, and a fast rank, do not mix up. Method: rank 0 brings ten
// before rank 1 brings its first; each sum differs.
TEST_P(CommunicatorTest, SeveralInFlight) {
  open(2);
  std::vector<std::vector<double>> values(20);
  std::vector<Completion> completions(20);
  for (size_t i = 0; i < 20; ++i) {
    values[i] = {static_cast<double>(i % 10 + 1)};
    ranks_[i / 10]->all_reduce_sum(5 + 3 * (i % 10), values[i], completions[i]);
  }
  wait(completions);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(values[i][0], 2.0 * (i % 10 + 1));
}

// Goal: ranks on threads of their own get the same answers. Method: four threads, 200 rounds of
// gather and reduce, each polling only its own rank.
TEST_P(CommunicatorTest, RanksOnThreads) {
  if (!GetParam().on_threads) GTEST_SKIP() << "these ranks share one thread";
  constexpr uint32_t kWorld = 4;
  open(kWorld);
  std::vector<DeviceSpan> alls;
  for (uint32_t rank = 0; rank < kWorld; ++rank) alls.push_back(hbm(kWorld * sizeof(float)));
  std::vector<int> wrong(kWorld, 0);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator& comm = *ranks_[rank];
      const DeviceSpan own = alls[rank].subspan(rank * sizeof(float), sizeof(float));
      const auto all = view<float>(alls[rank]);
      for (Turn turn = 0; turn < 400; turn += 2) {
        all[rank] = static_cast<float>(turn + rank);
        Completion gathered, reduced;
        comm.all_gather(turn, own, alls[rank], gathered);
        poll_until_done(comm, gathered);
        for (uint32_t peer = 0; peer < kWorld; ++peer) {
          wrong[rank] += all[peer] != static_cast<float>(turn + peer);
          all[peer] += static_cast<float>(rank);
        }
        comm.reduce_scatter_mean(turn + 1, alls[rank], own, DType::kFloat32, reduced);
        poll_until_done(comm, reduced);
        wrong[rank] += all[rank] != static_cast<float>(turn + rank) + 1.5f;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kWorld, 0));
}

// Goal: ranks that bring different calls all get one error that names both. Method: one difference
// each in turn, kind, size and dtype; everything later fails too.
TEST_P(CommunicatorTest, MismatchEndsEverything) {
  const DeviceSpan all = hbm(4096);
  const DeviceSpan own = hbm(2048);
  const auto gather = [&](Turn turn, uint64_t bytes) {
    return [=](Communicator& comm, Completion& completion) {
      comm.all_gather(turn, own.subspan(0, bytes / 2), all.subspan(0, bytes), completion);
    };
  };
  const auto reduce = [&](DType dtype) {
    return [=](Communicator& comm, Completion& completion) {
      comm.reduce_scatter_mean(7, all, own, dtype, completion);
    };
  };
  using Start = std::function<void(Communicator&, Completion&)>;
  const std::pair<Start, Start> pairs[] = {{gather(7, 4096), gather(8, 4096)},
                                           {gather(7, 4096), reduce(DType::kFloat32)},
                                           {gather(7, 4096), gather(7, 2048)},
                                           {reduce(DType::kFloat32), reduce(DType::kBFloat16)}};
  for (const auto& [first, second] : pairs) {
    open(2);
    std::vector<Completion> completions(2);
    first(*ranks_[0], completions[0]);
    second(*ranks_[1], completions[1]);
    wait(completions);
    for (const Completion& completion : completions) {
      EXPECT_EQ(completion.status().code(), Code::kCommError);
      EXPECT_NE(completion.status().message().find("rank 0"), std::string::npos);
      EXPECT_NE(completion.status().message().find("rank 1"), std::string::npos);
      EXPECT_NE(completion.status().message().find("turn 7"), std::string::npos);
    }
    std::vector<Completion> later(1);
    gather(9, 4096)(*ranks_[0], later[0]);
    wait(later);
    EXPECT_EQ(later[0].status().code(), Code::kCommError);
  }
}

// Goal: the error can be acted on. Method: its words, for the example of the documentation.
TEST_P(CommunicatorTest, MismatchSaysWhoBroughtWhat) {
  open(2);
  const DeviceSpan all = hbm(4096);
  std::vector<Completion> completions(2);
  ranks_[0]->reduce_scatter_mean(8, all, hbm(2048), DType::kBFloat16, completions[0]);
  ranks_[1]->all_gather(7, hbm(2048), all, completions[1]);
  wait(completions);
  EXPECT_EQ(completions[0].status().message(),
            "rank 1 brought all_gather of 4096 bytes at turn 7, rank 0 reduce_scatter_mean of 4096 "
            "bytes of bf16 at turn 8");
}

// Goal: abort() ends what is in flight and what comes, on every rank, with its reason; what had
// finished stays so; the first reason sticks. Method: one collective done, one half brought, then
// abort by the third rank.
TEST_P(CommunicatorTest, AbortWakesThePeers) {
  open(3);
  std::vector<double> values(1);
  std::vector<Completion> done(3), waiting(2), later(1);
  for (uint32_t rank = 0; rank < 3; ++rank) ranks_[rank]->all_reduce_sum(1, {}, done[rank]);
  wait(done);
  ranks_[0]->all_reduce_sum(2, values, waiting[0]);
  ranks_[1]->all_reduce_sum(2, values, waiting[1]);
  ranks_[2]->abort(Status(Code::kIoError, "the disk is gone"));
  ranks_[0]->abort(Status(Code::kIoError, "so is mine"));
  EXPECT_TRUE(waiting[0].pending());
  ranks_[0]->all_reduce_sum(3, values, later[0]);
  wait(waiting);
  wait(later);
  for (const Completion& completion : done) EXPECT_TRUE(completion.status().ok());
  for (const Completion* completion : {&waiting[0], &waiting[1], &later[0]}) {
    EXPECT_EQ(completion->status().code(), Code::kCommError);
    EXPECT_NE(completion->status().message().find("the disk is gone"), std::string::npos);
  }
}

// Goal: a turn that does not rise is our mistake. Method: the same turn twice on one rank; death.
TEST_P(CommunicatorTest, TurnsMustRise) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  open(1);
  EXPECT_DEATH(
      {
        Completion one;
        Completion two;
        ranks_[0]->all_reduce_sum(4, {}, one);
        ranks_[0]->all_reduce_sum(4, {}, two);
      },
      "turn");
}

INSTANTIATE_TEST_SUITE_P(Communicators, CommunicatorTest, testing::ValuesIn(kCommunicatorRows),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace zoffload
