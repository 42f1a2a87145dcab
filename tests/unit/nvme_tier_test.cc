// What only the NVMe tier does: shares by weight and by measured speed, files written at open,
// priorities, depth, cancel, its errors.
#include "tiers/nvme_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/sim/sim_clock.h"
#include "core/sim/sim_disk.h"
#include "core/sim/sim_workers.h"
#include "tests/conformance/memory_queue.h"
#include "tests/conformance/tier_factories.h"

namespace zoffload {
namespace {

constexpr uint64_t kBlock = 2 * kPageBytes;
const NvmeOptions kOptions{.block_bytes = kBlock, .extent_bytes_max = 8 * kPageBytes};

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

// Goal: a path with little room holds what fits and the others the rest, in proportion to their
// weights; every extent finds a place, and nothing lies past the end of a file. Where all together
// are too small the sizes say so. Method: a limit on one of three paths, then on all.
TEST_F(NvmeTierTest, PathsWithLittleRoomHoldWhatFits) {
  std::vector<NvmePath> paths = {
      {&queues[0], "a", 3, "a"}, {&queues[1], "b", 1, "b"}, {&queues[2], "c", 2, "c"}};
  const uint64_t capacity = 600 * kPageBytes;
  NvmeOptions options = kOptions;
  options.headroom_share = 0;
  const uint64_t slack = options.extent_bytes_max + kPageBytes;
  paths[0].file_bytes_max = 150 * kPageBytes + slack + 1;
  const std::vector<uint64_t> bytes = NvmeTier::file_bytes(paths, capacity, options);
  EXPECT_EQ(bytes[0], 150 * kPageBytes + slack);
  EXPECT_EQ(bytes[1], 150 * kPageBytes + slack);
  EXPECT_EQ(bytes[2], 300 * kPageBytes + slack);

  auto tier = std::move(NvmeTier::open(paths, capacity, memory(kBlock), clock, options).value());
  std::mt19937_64 random(2);
  while (tier->used_bytes() < capacity) {
    const uint64_t free_bytes = capacity - tier->used_bytes();
    const uint64_t pages = std::min(free_bytes / kPageBytes, 1 + random() % 8);
    ASSERT_TRUE(tier->allocate(pages * kPageBytes).ok());  // a check fails where no path has room
  }
  for (uint32_t i = 0; i < 3; ++i) EXPECT_LE(tier->report(i).used_bytes, bytes[i]);

  for (NvmePath& path : paths) path.file_bytes_max = 100 * kPageBytes;
  EXPECT_GT(NvmeTier::file_bytes(paths, capacity, options)[0], paths[0].file_bytes_max);
}

// Goal: open() writes every byte of every file, with bytes that no drive can compress, and says how
// far it is. Method: short transfers, files that are new with other bytes; the progress must rise
// to the sum of the files; no word of a block repeats.
TEST_F(NvmeTierTest, OpenWritesTheFilesFull) {
  const HostSpan scratch = memory(kBlock);
  for (MemoryQueue& queue : queues) queue.short_transfers(true);
  std::vector<NvmePath> paths = {{&queues[0], "a", 1, "a"}, {&queues[1], "b", 2, "b"}};
  const uint64_t capacity = 101 * kPageBytes + 1;
  uint64_t last = 0;
  uint64_t total = 0;
  auto tier = NvmeTier::open(paths, capacity, scratch, clock, kOptions,
                             [&](uint64_t done_bytes, uint64_t total_bytes) {
                               EXPECT_GT(done_bytes, last);
                               last = done_bytes;
                               total = total_bytes;
                             });
  ASSERT_TRUE(tier.ok()) << tier.status().to_string();
  const std::vector<uint64_t> bytes = NvmeTier::file_bytes(paths, capacity, kOptions);
  EXPECT_EQ(total, bytes[0] + bytes[1]);
  EXPECT_EQ(last, total);
  const auto words = elements<uint64_t>(scratch);
  EXPECT_EQ(std::set<uint64_t>(words.begin(), words.end()).size(), words.size());
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(queues[i].file(0).size(), bytes[i]);
    for (uint64_t at = 0; at < bytes[i]; ++at) {
      ASSERT_EQ(queues[i].file(0)[at], scratch[at % kBlock]) << at;
    }
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
  Completion before;
  tier->store(memory(2 * kBlock), loaded, before);
  while (!before.done()) tier->poll();
  const size_t first = queues[0].requests().size();
  Completion store, load;
  tier->store(memory(8 * kBlock), stored, store);
  tier->load(loaded, memory(2 * kBlock), Urgency::kPrefetch, load);
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

// Goal: what was never stored costs the drive nothing. Method: load it; no request.
TEST_F(NvmeTierTest, UnstoredExtentsAreNotRead) {
  auto tier = std::move(open({1}, 100 * kPageBytes).value());
  const Extent extent = tier->allocate(3 * kBlock).value();
  const size_t request_count = queues[0].requests().size();
  Completion load;
  tier->load(extent, memory(3 * kBlock), Urgency::kDemand, load);
  EXPECT_TRUE(load.pending());
  tier->poll();
  EXPECT_EQ(load.bytes(), 3 * kBlock);
  EXPECT_EQ(queues[0].requests().size(), request_count);
}

// ---- Drives of different speeds, on simulated time

// Two disks behind a tier that believes that they are equal, and a user who stores everything again
// and again.
struct UnequalDrivesTest : testing::Test {
  static constexpr uint64_t kExtent = 8 * kPageBytes;
  static constexpr uint64_t kExtentCount = 64;

  void open(double first_bytes_per_ns, double second_bytes_per_ns, double headroom_share = 1) {
    for (double bytes_per_ns : {first_bytes_per_ns, second_bytes_per_ns}) {
      disk_options.read_bytes_per_ns = disk_options.write_bytes_per_ns = bytes_per_ns;
      disks.push_back(std::make_unique<SimIoQueue>(clock, disk_options, SimDiskFaults{},
                                                   disks.size() + 1, nullptr));
    }
    NvmeOptions options{.block_bytes = kBlock, .extent_bytes_max = kExtent};
    options.headroom_share = headroom_share;
    options.window_bytes = 32 * kBlock;
    options.warn = [this](const std::string& text) { warnings.push_back(text); };
    const std::vector<NvmePath> paths = {{disks[0].get(), "a", 1, "/mnt/a", 4, true},
                                         {disks[1].get(), "b", 1, "/mnt/b", 4, true}};
    tier = std::move(
        NvmeTier::open(paths, kExtent * kExtentCount, memory, clock, options, {}, &workers)
            .value());
    for (uint64_t i = 0; i < kExtentCount; ++i) {
      extents.push_back(tier->allocate(kExtent).value());
    }
  }

  void drive(const std::deque<Completion>& completions) {
    const auto all_done = [&] {
      return std::all_of(completions.begin(), completions.end(),
                         [](const Completion& each) { return each.done(); });
    };
    while (!all_done()) {
      if (workers.poll() + tier->poll() == 0) clock.doze(1'000'000);
    }
  }
  HostSpan part(size_t i) { return memory.subspan(i * kExtent, kExtent); }
  // Returns what became of each.
  std::deque<Completion> store_all(uint8_t value) {
    std::deque<Completion> completions(extents.size());
    for (size_t i = 0; i < extents.size(); ++i) {
      std::fill(part(i).begin(), part(i).end(), static_cast<std::byte>(value + i));
      tier->store(part(i), extents[i], completions[i]);
    }
    drive(completions);
    return completions;
  }
  void expect_loads(uint8_t value, const std::deque<Completion>& stored) {
    std::fill(memory.begin(), memory.end(), std::byte{0});
    std::deque<Completion> completions(extents.size());
    for (size_t i = 0; i < extents.size(); ++i) {
      tier->load(extents[i], part(i), Urgency::kPrefetch, completions[i]);
    }
    drive(completions);
    for (size_t i = 0; i < extents.size(); ++i) {
      const bool well = stored[i].status().ok();
      ASSERT_EQ(completions[i].status().code(), well ? Code::kOk : Code::kCorruption);
      if (!well) continue;
      ASSERT_EQ(part(i).front(), static_cast<std::byte>(value + i));
      ASSERT_EQ(part(i).back(), static_cast<std::byte>(value + i));
    }
  }
  size_t count_on(uint32_t path) const {
    return static_cast<size_t>(std::count_if(extents.begin(), extents.end(), [&](Extent extent) {
      return tier->path_index(extent) == path;
    }));
  }

  HostDevice device;
  SimClock clock;
  SimDiskOptions disk_options{.latency_ns = 1000, .depth = 8};
  std::vector<std::unique_ptr<SimIoQueue>> disks;
  SimWorkers workers{clock, SimWorkersOptions{}, 1, nullptr};
  HostSpan memory = device.allocate_pinned(kExtent * kExtentCount).value();
  std::vector<std::string> warnings;
  std::unique_ptr<NvmeTier> tier;
  std::vector<Extent> extents;
};

// Goal: a path that is slower than its weight gives extents to the others until the shares are
// those of the speeds, no byte gets lost on the way, and the user hears of it once, with name and
// figures. Method: disks of speed three to one behind equal weights.
TEST_F(UnequalDrivesTest, SharesFollowTheSpeeds) {
  open(3, 1);
  EXPECT_EQ(count_on(0), kExtentCount / 2);
  for (uint8_t round = 0; round < 20; ++round) {
    expect_loads(round, store_all(round));
    if (HasFatalFailure()) return;
  }
  EXPECT_NEAR(tier->report(0).share, 0.75, 0.06);
  EXPECT_NEAR(static_cast<double>(count_on(0)), tier->report(0).share * kExtentCount, 2);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].find("nvme_path /mnt/b moves "), 0u) << warnings[0];
  EXPECT_NE(warnings[0].find("its share goes from 50 % to 2"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("--path /mnt/b"), std::string::npos) << warnings[0];
}

// Goal: equal drives are left alone. Method: as above, at one speed.
TEST_F(UnequalDrivesTest, EqualDrivesKeepTheirShares) {
  open(2, 2);
  for (uint8_t round = 0; round < 10; ++round) expect_loads(round, store_all(round));
  EXPECT_EQ(count_on(0), kExtentCount / 2);
  EXPECT_EQ(tier->report(0).share, 0.5);
  EXPECT_GT(tier->report(0).bytes_per_s, 0);
  EXPECT_TRUE(warnings.empty());
}

// Goal: no more moves to a path than its file holds. Method: files with next to no headroom.
TEST_F(UnequalDrivesTest, FilesAreNeverOverfilled) {
  open(4, 1, 0);  // the simulated disk ends the process on a write past the end
  for (uint8_t round = 0; round < 20; ++round) expect_loads(round, store_all(round));
  EXPECT_GT(tier->report(0).share, 0.7);
  EXPECT_GE(count_on(0), kExtentCount / 2);
  EXPECT_LE(count_on(0), kExtentCount / 2 + 2);  // room for one more, and rounding
}

// Goal: extents can go to and fro for ever, failing stores among them: what failed loads as
// corruption and nothing else does, every place is used again, and each path is named once at most.
// Method: now the one disk is slow and now the other, with errors on both and little headroom; a
// place lost in a round would be missing in the end.
TEST_F(UnequalDrivesTest, ExtentsGoToAndFroAndLoseNoPlace) {
  open(2, 2, 0.5);
  for (uint32_t phase = 0; phase < 6; ++phase) {
    const uint32_t slow = phase % 2;
    for (uint8_t round = 0; round < 25; ++round) {
      for (uint32_t i = 0; i < 2; ++i) {
        disks[i]->set_faults({.eio = 0.03, .slow = i == slow ? 0.7 : 0});
      }
      const std::deque<Completion> stored = store_all(round);
      for (uint32_t i = 0; i < 2; ++i) disks[i]->set_faults({.slow = i == slow ? 0.7 : 0});
      expect_loads(round, stored);
      if (HasFatalFailure()) return;
    }
    for (uint32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(tier->report(i).used_bytes, count_on(i) * kExtent) << phase;
    }
    EXPECT_LT(tier->report(slow).share, 0.35) << phase;
    EXPECT_LE(count_on(slow), kExtentCount * 35 / 100) << phase;
  }
  EXPECT_GT(disks[0]->fault_counts().eio, 10u);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("/mnt/a"), std::string::npos);
  EXPECT_NE(warnings[1].find("/mnt/b"), std::string::npos);
}

// ---- Depth

// Goal: the depth in use is the path's, and goes to where half of it would cost speed, unless the
// user fixed it. Method: a simulated disk that needs about 17 small requests in flight for its full
// rate, at first given 64.
TEST(NvmeTierDepth, GoesToTheKnee) {
  for (const bool fixed : {false, true}) {
    HostDevice device;
    SimClock clock;
    SimDiskOptions disk_options{.latency_ns = 80'000, .depth = 64};
    disk_options.write_bytes_per_ns = 1.6;
    SimIoQueue disk(clock, disk_options, SimDiskFaults{}, 1, nullptr);
    NvmeOptions options{.block_bytes = kBlock, .verify = false, .window_bytes = 256 * kBlock};
    const HostSpan memory = device.allocate_pinned(512 * kBlock).value();
    auto tier = std::move(
        NvmeTier::open({{&disk, "a", 1, "/mnt/a", 64, fixed}}, 512 * kBlock, memory, clock, options)
            .value());
    EXPECT_EQ(tier->report(0).depth, 64u);
    const Extent extent = tier->allocate(512 * kBlock).value();
    for (int round = 0; round < 140; ++round) {
      Completion store;
      tier->store(memory, extent, store);
      while (!store.done()) {
        if (tier->poll() == 0) clock.doze(1'000'000);
      }
    }
    if (fixed) {
      EXPECT_EQ(tier->report(0).depth, 64u);
    } else {
      EXPECT_GE(tier->report(0).depth, 16u);
      EXPECT_LE(tier->report(0).depth, 32u);
    }
  }
}

// Goal: a path with blocks of its own size is busy with as many bytes as any other, and so its
// speed is measured. Method: three blocks of 4 MiB in flight where the tier's other paths would
// have 1 MiB.
TEST(NvmeTierDepth, BusyCountsThePathsOwnBlocks) {
  constexpr uint64_t kLargeBlock = uint64_t{4} << 20;
  HostDevice device;
  SimClock clock;
  SimIoQueue disk(clock, {.depth = 64}, SimDiskFaults{}, 1, nullptr);
  const HostSpan memory = device.allocate_pinned(3 * kLargeBlock).value();
  NvmePath path{&disk, "a", 1, "/mnt/a"};
  path.block_bytes = kLargeBlock;
  auto tier = std::move(NvmeTier::open({path}, 3 * kLargeBlock, memory, clock,
                                       {.verify = false, .window_bytes = 2 * kLargeBlock})
                            .value());
  const Extent extent = tier->allocate(3 * kLargeBlock).value();
  for (int round = 0; round < 4; ++round) {
    Completion store;
    tier->store(memory, extent, store);
    while (!store.done()) {
      if (tier->poll() == 0) clock.doze(1'000'000);
    }
  }
  EXPECT_GT(tier->report(0).bytes_per_s, 0);
}

// ---- Drives that do not answer

// Takes requests and never gives them back.
struct DeadQueue : MemoryQueue {
  uint32_t poll() override { return 0; }
};

// Goal: open() on a drive that hangs ends with kTimeout and the path's name; the others' blocks are
// waited for. Method: a disk that answers only when it is cancelled, beside one that works; then
// one that does not even do that.
TEST_F(NvmeTierTest, OpenGivesUpOnADriveThatHangs) {
  SimClock sim_clock;
  SimIoQueue good(sim_clock, SimDiskOptions{}, SimDiskFaults{}, 1, nullptr);
  SimIoQueue hung(sim_clock, SimDiskOptions{}, SimDiskFaults{.never = 0.5}, 2, nullptr);
  NvmeOptions options = kOptions;
  options.stall_timeout_ns = 5'000'000'000;
  Status status = NvmeTier::open({{&good, "a", 1, "/mnt/a"}, {&hung, "b", 1, "/mnt/b"}},
                                 400 * kPageBytes, memory(kBlock), sim_clock, options)
                      .status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.message(), "nvme: /mnt/b: first write: nothing has moved for 5.00 s");
  EXPECT_EQ(good.in_flight() + hung.in_flight(), 0u);

  DeadQueue dead;
  status = NvmeTier::open({{&queues[0], "a", 1, "/mnt/a"}, {&dead, "b", 1, "/mnt/b"}},
                          100 * kPageBytes, memory(kBlock), clock, options)
               .status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.message(), "nvme: /mnt/b: first write: nothing has moved for 5.00 s");
  EXPECT_GT(dead.in_flight(), 0u);  // its completions were leaked, not freed
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
        tier->load(extent, page, Urgency::kDemand, two);
      },
      "busy");
}

}  // namespace
}  // namespace zoffload
