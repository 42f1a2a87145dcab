// What only the NVMe tier does: shares by weight, files written at open, priorities, cancel, its
// errors.
#include "tiers/nvme_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "tests/conformance/memory_queue.h"
#include "tests/conformance/tier_factories.h"

namespace zoffload {
namespace {

constexpr uint64_t kBlock = 2 * kPageBytes;
constexpr NvmeOptions kOptions{.block_bytes = kBlock, .extent_bytes_max = 8 * kPageBytes};

struct NvmeTierTest : testing::Test {
  Result<std::unique_ptr<NvmeTier>> open(const std::vector<double>& weights, uint64_t capacity,
                                         const NvmeTier::Progress& progress = {}) {
    std::vector<NvmePath> paths;
    for (size_t i = 0; i < weights.size(); ++i) {
      const std::string name = "/mnt/" + std::to_string(i);
      paths.push_back({&queues[i], name + "/zo-swap.dat", weights[i], name});
    }
    return NvmeTier::open(paths, capacity, memory(kBlock), clock, kOptions, progress);
  }
  HostSpan memory(uint64_t bytes) { return device.allocate_pinned(bytes).value(); }

  HostDevice device;
  DozingClock clock;
  MemoryQueue queues[3] = {MemoryQueue(2), MemoryQueue(4), MemoryQueue(4)};
};

// Goal: each path gets bytes in proportion to its weight, never off by more than the largest
// extent, and never more than its file holds. Method: random sizes until the tier is full; the
// shares are checked after every one.
TEST_F(NvmeTierTest, SharesByWeight) {
  const std::vector<double> weights = {3, 1, 2};
  const uint64_t capacity = 1000 * kPageBytes;
  auto tier = std::move(open(weights, capacity).value());
  std::mt19937_64 random(1);
  double used[3] = {};
  while (tier->used_bytes() < capacity) {
    const uint64_t free_bytes = capacity - tier->used_bytes();
    const uint64_t pages = std::min(free_bytes / kPageBytes, 1 + random() % 8);
    const Extent extent = tier->allocate(pages * kPageBytes).value();
    used[tier->path_index(extent)] += static_cast<double>(extent.bytes);
    for (size_t i = 0; i < 3; ++i) {
      const double share = weights[i] / 6 * static_cast<double>(tier->used_bytes());
      ASSERT_LE(used[i], share + 8 * kPageBytes);
      ASSERT_GE(used[i], share - 2 * 8 * kPageBytes);
    }
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(used[i], queues[i].file(0).size());
}

// Goal: open() writes every byte of every file, full of zeros, though its scratch is not, and says
// how far it is. Method: scratch with other bytes, short transfers, files that are new with other
// bytes; the progress must rise to the sum of the files.
TEST_F(NvmeTierTest, OpenWritesTheFilesFull) {
  const HostSpan zeros = memory(kBlock);
  std::fill(zeros.begin(), zeros.end(), std::byte{0x55});
  for (MemoryQueue& queue : queues) queue.short_transfers(true);
  std::vector<NvmePath> paths = {{&queues[0], "a", 1, "a"}, {&queues[1], "b", 2, "b"}};
  const uint64_t capacity = 101 * kPageBytes + 1;
  uint64_t last = 0;
  uint64_t total = 0;
  auto tier = NvmeTier::open(paths, capacity, zeros, clock, kOptions,
                             [&](uint64_t done_bytes, uint64_t total_bytes) {
                               EXPECT_GT(done_bytes, last);
                               last = done_bytes;
                               total = total_bytes;
                             });
  ASSERT_TRUE(tier.ok()) << tier.status().to_string();
  const std::vector<uint64_t> bytes = NvmeTier::file_bytes(paths, capacity, kOptions);
  EXPECT_EQ(total, bytes[0] + bytes[1]);
  EXPECT_EQ(last, total);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(queues[i].file(0), std::vector<std::byte>(bytes[i]));
  }
}

// Goal: open() fails with the path's name if a file cannot be made or filled, after everything came
// back. Method: an error from the queue's open; an error in the middle of the first write.
TEST_F(NvmeTierTest, OpenErrorsNameThePath) {
  queues[1].open_error(Status::from_errno(EROFS, "/mnt/1/zo-swap.dat"));
  const Status made = open({1, 1}, 100 * kPageBytes).status();
  EXPECT_EQ(made.code(), Code::kInvalidArgument);
  EXPECT_EQ(made.message().find("nvme: /mnt/1: "), 0u) << made.message();

  queues[1].open_error(Status());
  queues[1].fault_at(5, {.status = Status::from_errno(ENOSPC, "write")});
  const Status filled = open({1, 1}, 100 * kPageBytes).status();
  EXPECT_EQ(filled.code(), Code::kOutOfSpace);
  EXPECT_EQ(filled.message().find("nvme: /mnt/1: "), 0u) << filled.message();
  EXPECT_EQ(queues[0].in_flight() + queues[1].in_flight(), 0u);
  EXPECT_LT(queues[0].requests().size(), queues[0].file(0).size() / kBlock);  // it gave up at once
}

// Goal: somebody waits for a load, so its blocks go before those of an earlier store. Method: a
// store of eight blocks on a queue of depth two, then a load; after the two blocks that left at
// once, the next are reads.
TEST_F(NvmeTierTest, LoadsGoBeforeStores) {
  auto tier = std::move(open({1}, 100 * kPageBytes).value());
  const Extent stored = tier->allocate(8 * kBlock).value();
  const Extent loaded = tier->allocate(2 * kBlock).value();
  const size_t first = queues[0].requests().size();
  Completion store, load;
  tier->store(memory(8 * kBlock), stored, store);
  tier->load(loaded, memory(2 * kBlock), load);
  while (!store.done() || !load.done()) tier->poll();
  std::string kinds;
  for (size_t i = first; i < queues[0].requests().size(); ++i) {
    kinds += queues[0].requests()[i].kind == IoRequest::Kind::kRead ? 'r' : 'w';
  }
  EXPECT_EQ(kinds, "wwrrwwwwww");
}

// Goal: cancel() ends what is in flight and what waits, in poll(), and nothing more reaches the
// drive. Method: two stores on a drive that answers a few blocks at a time and cuts them short,
// cancelled in the middle, by many seeds.
TEST_F(NvmeTierTest, CancelEndsEverything) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    MemoryQueue queue(4, seed);
    auto tier = std::move(
        NvmeTier::open({{&queue, "a", 1, "a"}}, 100 * kPageBytes, memory(kBlock), clock, kOptions)
            .value());
    const Extent first = tier->allocate(8 * kBlock).value();
    const Extent second = tier->allocate(8 * kBlock).value();
    queue.short_transfers(true);
    Completion one;
    Completion two;
    tier->store(memory(8 * kBlock), first, one);
    tier->store(memory(8 * kBlock), second, two);
    for (uint64_t polls = 0; polls < seed % 4; ++polls) tier->poll();
    const size_t request_count = queue.requests().size();
    tier->cancel();
    EXPECT_TRUE(one.pending());
    while (!one.done() || !two.done()) tier->poll();
    EXPECT_EQ(one.status().code(), Code::kTimeout);
    EXPECT_EQ(two.status().code(), Code::kTimeout);
    EXPECT_EQ(queue.requests().size(), request_count);
  }
}

// Goal: two operations on one extent at once are our mistake. Method: death.
TEST_F(NvmeTierTest, OneOperationPerExtent) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto tier = std::move(open({1}, 100 * kPageBytes).value());
  const Extent extent = tier->allocate(kBlock).value();
  const HostSpan page = memory(kBlock);
  EXPECT_DEATH(
      {
        Completion one;
        Completion two;
        tier->store(page, extent, one);
        tier->load(extent, page, two);
      },
      "busy");
}

}  // namespace
}  // namespace zoffload
