// What every Tier promises, over every row of tier_factories.h; and, for the rows with queues
// below, that no fault of a drive ever turns into wrong bytes.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <random>

#include "tests/conformance/tier_factories.h"

namespace zoffload {
namespace {

constexpr uint64_t kCapacity = 256 * kPageBytes;

void fill_random(HostSpan memory, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
}

class TierTest : public testing::TestWithParam<TierRow> {
 protected:
  void open(uint64_t seed = 0) { world_ = GetParam().make(kCapacity, seed); }
  Tier& tier() { return *world_->tier; }
  Extent allocate(uint64_t bytes) { return tier().allocate(bytes).value(); }

  void wait(const Completion& completion) {
    for (int polls = 0; polls < 100'000 && !completion.done(); ++polls) world_->poll();
    ASSERT_TRUE(completion.done());
  }
  Status load(Extent from, HostSpan to) {
    Completion completion;
    tier().load(from, to, Urgency::kDemand, completion);
    wait(completion);
    return completion.status();
  }
  Status store(HostSpan from, Extent to) {
    Completion completion;
    tier().store(from, to, completion);
    wait(completion);
    return completion.status();
  }
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

  std::unique_ptr<TierWorld> world_;
};

// Goal: what is stored is loaded, for extents of every awkward size, in any order of the drive,
// after overwrites too, and with transfers cut short at random. Method: many extents, random bytes,
// three seeds, two rounds.
TEST_P(TierTest, RoundTrips) {
  for (uint64_t seed : {0, 1, 2}) {
    open(seed);
    for (auto& queue : world_->queues) queue->short_transfers(seed == 2);
    std::vector<Extent> extents;
    for (uint64_t bytes : {1u, 4095u, 4096u, 4097u, 70'000u, 131'072u, 12u}) {
      extents.push_back(allocate(bytes));
    }
    const HostSpan memory = world_->memory(131'072);
    for (uint64_t round = 0; round < 2; ++round) {
      for (Extent extent : extents) {
        const HostSpan padded = memory.first(round_up(extent.bytes, kPageBytes));
        fill_random(padded, extent.offset + round);
        expect_ok(store(padded, extent));
      }
      for (Extent extent : extents) {
        const HostSpan padded = memory.first(round_up(extent.bytes, kPageBytes));
        std::vector<std::byte> expected(padded.size());
        fill_random(expected, extent.offset + round);
        fill_random(padded, 99);
        expect_ok(load(extent, padded));
        ASSERT_EQ(std::memcmp(padded.data(), expected.data(), extent.bytes), 0) << extent.offset;
      }
    }
  }
}

// Goal: an extent reads as zeros until it is stored. Method: load into memory that held something
// else.
TEST_P(TierTest, UnstoredReadsAsZeros) {
  open();
  allocate(5000);
  const Extent extent = allocate(70'000);
  const HostSpan memory = world_->memory(70'000);
  fill_random(memory, 1);
  expect_ok(load(extent, memory));
  EXPECT_EQ(std::vector<std::byte>(memory.begin(), memory.begin() + 70'000),
            std::vector<std::byte>(70'000));
}

// Goal: extents are pages of their own and end at the capacity, with an error that says how much is
// missing. Method: fill the tier to its last page, then ask for one more.
TEST_P(TierTest, AllocatesUpToTheCapacity) {
  open();
  EXPECT_EQ(tier().capacity_bytes(), kCapacity);
  EXPECT_EQ(allocate(1), (Extent{0, 1}));
  EXPECT_EQ(allocate(kPageBytes + 1), (Extent{kPageBytes, kPageBytes + 1}));
  while (tier().used_bytes() < kCapacity) allocate(kPageBytes);
  const Result<Extent> more = tier().allocate(1);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().code(), Code::kOutOfSpace);
  EXPECT_NE(more.status().message().find("4.00 KiB missing"), std::string::npos);
}

// Goal: the last extent can be used as the first, whatever the sizes before. Method: fill the tier
// with extents of random sizes, store all of them at once, then load all at once, and compare: also
// many in flight.
TEST_P(TierTest, ManyInFlight) {
  open(7);
  std::mt19937_64 random(3);
  std::vector<Extent> extents;
  while (tier().used_bytes() < kCapacity) {
    const uint64_t free_bytes = kCapacity - tier().used_bytes();
    extents.push_back(allocate(std::min<uint64_t>(free_bytes, 1 + random() % 60'000)));
  }
  const HostSpan stored = world_->memory(kCapacity);
  const HostSpan loaded = world_->memory(kCapacity);
  fill_random(stored, 5);
  std::deque<Completion> completions(extents.size());
  for (const bool is_load : {false, true}) {
    for (size_t i = 0; i < extents.size(); ++i) {
      const uint64_t padded = round_up(extents[i].bytes, kPageBytes);
      if (is_load) {
        tier().load(extents[i], loaded.subspan(extents[i].offset, padded),
                    i % 2 == 0 ? Urgency::kDemand : Urgency::kPrefetch, completions[i]);
      } else {
        tier().store(stored.subspan(extents[i].offset, padded), extents[i], completions[i]);
      }
    }
    for (const Completion& completion : completions) {
      wait(completion);
      expect_ok(completion.status());
    }
  }
  for (Extent extent : extents) {
    ASSERT_EQ(
        std::memcmp(loaded.data() + extent.offset, stored.data() + extent.offset, extent.bytes), 0);
  }
  for (auto& queue : world_->queues) EXPECT_EQ(queue->in_flight_max(), queue->depth());
}

// Goal: operations finish in poll(), once, report their bytes, and poll() counts them. Method: two
// operations, watched before and after; the bytes of the tier are counted by direction.
TEST_P(TierTest, FinishesInPollAndCounts) {
  open();
  const Extent first = allocate(5000);
  const Extent second = allocate(100);
  const HostSpan memory = world_->memory(3 * kPageBytes);
  expect_ok(store(memory.first(2 * kPageBytes), first));
  Completion one;
  Completion two;
  tier().load(first, memory.first(2 * kPageBytes), Urgency::kPrefetch, one);
  tier().load(second, memory.last(kPageBytes), Urgency::kDemand, two);
  EXPECT_TRUE(one.pending());
  EXPECT_TRUE(two.pending());
  uint32_t delivered = 0;
  for (int polls = 0; polls < 1000 && delivered < 2; ++polls) delivered += world_->poll();
  EXPECT_EQ(delivered, 2u);
  EXPECT_EQ(world_->poll(), 0u);
  EXPECT_EQ(one.bytes(), 5000u);
  EXPECT_EQ(two.bytes(), 100u);
  EXPECT_EQ(tier().stored_bytes(), 5000u);
  EXPECT_EQ(tier().loaded_bytes(), 5100u);
}

// Goal: where a tier shows its bytes, they are the bytes that load and store move. Method: store,
// look, change, load.
TEST_P(TierTest, ShownBytesAreTheBytes) {
  open();
  allocate(10);
  const Extent extent = allocate(5000);
  HostSpan shown = tier().host_bytes(extent);
  if (shown.empty()) shown = world_->device.host_view(tier().device_bytes(extent));
  if (shown.empty()) GTEST_SKIP() << "this tier's bytes can only be moved";
  ASSERT_EQ(shown.size(), 5000u);
  const HostSpan memory = world_->memory(5000);
  fill_random(memory, 4);
  expect_ok(store(memory, extent));
  EXPECT_EQ(std::memcmp(shown.data(), memory.data(), 5000), 0);
  shown[4999] ^= std::byte{1};
  expect_ok(load(extent, memory));
  EXPECT_EQ(std::memcmp(shown.data(), memory.data(), 5000), 0);
}

// Goal: a move past the end, of the wrong size, or of memory that is not page-aligned is our
// mistake, and ends the process. Method: one death each.
TEST_P(TierTest, ChecksBoundsSizeAndAlignment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  open();
  const Extent extent = allocate(kPageBytes);
  const HostSpan memory = world_->memory(3 * kPageBytes);
  const HostSpan page = memory.first(kPageBytes);
  Completion completion;
  EXPECT_DEATH(tier().load({kPageBytes, kPageBytes}, page, Urgency::kDemand, completion),
               "check failed");
  EXPECT_DEATH(tier().load(extent, memory.first(2 * kPageBytes), Urgency::kDemand, completion),
               "check failed");
  EXPECT_DEATH(tier().store(memory.subspan(512, kPageBytes), extent, completion), "check failed");
}

class TierOnDrivesTest : public TierTest {
 protected:
  // On every drive, as only one of them will see the request.
  void fault_at(uint64_t k, const MemoryQueue::Fault& fault) {
    for (auto& queue : world_->queues) queue->fault_at(k, fault);
  }
};

// Goal: an I/O error on any block of a move is reported once all its blocks are back, with the path
// and the drive's reason, and the tier works on. Method: fail the k-th request of a store and of a
// load for every k.
TEST_P(TierOnDrivesTest, ErrorsAreReported) {
  open(3);
  const Extent extent = allocate(16 * kPageBytes);  // eight blocks
  const HostSpan memory = world_->memory(extent.bytes);
  for (uint64_t k = 0; k < 8; ++k) {
    for (const bool is_load : {false, true}) {
      fault_at(k, {.status = Status::from_errno(EIO, "block")});
      const Status status = is_load ? load(extent, memory) : store(memory, extent);
      ASSERT_EQ(status.code(), Code::kIoError) << k;
      EXPECT_EQ(status.error_number(), EIO);
      EXPECT_EQ(status.message().find("nvme: /mnt/"), 0u) << status.message();
      for (auto& queue : world_->queues) EXPECT_EQ(queue->in_flight(), 0u);
      expect_ok(store(memory, extent));
      expect_ok(load(extent, memory));
    }
  }
}

// Goal: after a store that failed, its extent never passes for good, neither as the old bytes nor
// as the new ones. Method: overwrite with a fault, load, expect corruption.
TEST_P(TierOnDrivesTest, FailedStoreDoesNotPassForTheOldBytes) {
  open();
  const Extent extent = allocate(kPageBytes);
  const HostSpan memory = world_->memory(kPageBytes);
  fill_random(memory, 1);
  expect_ok(store(memory, extent));
  fill_random(memory, 2);
  fault_at(0, {.status = Status::from_errno(EIO, "block")});
  EXPECT_EQ(store(memory, extent).code(), Code::kIoError);
  EXPECT_EQ(load(extent, memory).code(), Code::kCorruption);
}

// Goal: a wrong bit is an error and never wrong bytes. Method: flip one random bit of a random
// block, many times.
TEST_P(TierOnDrivesTest, BitFlipsAreCorruption) {
  open(5);
  const Extent extent = allocate(16 * kPageBytes);
  const HostSpan memory = world_->memory(extent.bytes);
  std::mt19937_64 random(1);
  expect_ok(store(memory, extent));
  for (uint64_t round = 0; round < 50; ++round) {
    fault_at(random() % 8, {.flips_bit = true});
    const Status status = load(extent, memory);
    ASSERT_EQ(status.code(), Code::kCorruption);
    EXPECT_EQ(status.message().find("nvme: /mnt/"), 0u) << status.message();
    EXPECT_NE(status.message().find("65536 bytes at 0"), std::string::npos) << status.message();
    expect_ok(load(extent, memory));
    fill_random(memory, round);
    expect_ok(store(memory, extent));
  }
}

// Goal: a drive that moves nothing is an error, not an endless loop: out of space for a store,
// corruption for a load. Method: a transfer of no bytes, and one of fewer than the alignment.
TEST_P(TierOnDrivesTest, NoProgressIsAnError) {
  open();
  const Extent extent = allocate(4 * kPageBytes);
  const HostSpan memory = world_->memory(extent.bytes);
  for (uint64_t bytes : {0, 100}) {
    fault_at(0, {.bytes_max = bytes});
    const Status stored = store(memory, extent);
    EXPECT_EQ(stored.code(), Code::kOutOfSpace) << stored.to_string();
    EXPECT_EQ(stored.error_number(), ENOSPC);
    expect_ok(store(memory, extent));
    fault_at(0, {.bytes_max = bytes});
    const Status loaded = load(extent, memory);
    EXPECT_EQ(loaded.code(), Code::kCorruption) << loaded.to_string();
    EXPECT_NE(loaded.message().find("unexpected end of file"), std::string::npos);
  }
}

std::string row_name(const testing::TestParamInfo<TierRow>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Memory, TierTest, testing::ValuesIn(kMemoryTierRows), row_name);
INSTANTIATE_TEST_SUITE_P(Drives, TierTest, testing::ValuesIn(kDriveTierRows), row_name);
INSTANTIATE_TEST_SUITE_P(Drives, TierOnDrivesTest, testing::ValuesIn(kDriveTierRows), row_name);

}  // namespace
}  // namespace zoffload
