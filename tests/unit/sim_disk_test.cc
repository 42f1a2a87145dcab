#include "core/sim/sim_disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

namespace zoffload {
namespace {

constexpr uint64_t kForever = ~uint64_t{0};
using Kind = IoRequest::Kind;

// A disk with one file of 64 pages and an arena of as many.
class SimDiskTest : public testing::Test {
 protected:
  static constexpr uint64_t kPageCount = 64;
  struct alignas(kPageBytes) Page {
    std::array<std::byte, kPageBytes> bytes = {};
  };

  explicit SimDiskTest(SimDiskOptions options = {})
      : arena_(kPageCount), queue_(clock_, options, {}, 1, &trace_) {
    file_ = *queue_.open("/mnt/file", kPageCount * kPageBytes);
  }

  HostSpan memory(uint64_t page, uint64_t page_count = 1) {
    return HostSpan(arena_[page].bytes.data(), page_count * kPageBytes);
  }
  void fill(uint64_t page, uint64_t page_count, int value) {
    std::memset(memory(page, page_count).data(), value, page_count * kPageBytes);
  }
  IoRequest request(Kind kind, uint64_t page, uint64_t page_count = 1) {
    return {kind, file_, page * kPageBytes, memory(page, page_count)};
  }
  // Runs until nothing more happens.
  void drain() {
    queue_.poll();
    while (!clock_.idle()) {
      clock_.doze(kForever);
      queue_.poll();
    }
  }
  Status transfer(const IoRequest& request) {
    Completion completion;
    queue_.submit(request, completion);
    drain();
    return completion.status();
  }
  std::byte truth(uint64_t offset) {
    std::byte value;
    queue_.file("/mnt/file")->read(offset, HostSpan(&value, 1));
    return value;
  }
  uint64_t wrong_bits(uint64_t page_count, int value, HostSpan bytes) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < page_count * kPageBytes; ++i) {
      count += std::popcount(std::to_integer<unsigned>(bytes[i]) ^ static_cast<unsigned>(value));
    }
    return count;
  }

  SimClock clock_;
  Trace trace_{20};
  std::vector<Page> arena_;
  SimIoQueue queue_;
  FileId file_ = 0;
};

// Goal: what was written is read back, and unwritten bytes are zeros.
// Method: write two pages, clear the memory, read them and their neighbour.
TEST_F(SimDiskTest, ReadsWhatWasWritten) {
  fill(3, 2, 0x5a);
  EXPECT_TRUE(transfer(request(Kind::kWrite, 3, 2)).ok());
  EXPECT_EQ(truth(3 * kPageBytes), std::byte{0x5a});
  fill(3, 3, 0xff);
  EXPECT_TRUE(transfer(request(Kind::kRead, 3, 3)).ok());
  EXPECT_EQ(wrong_bits(2, 0x5a, memory(3, 2)), 0u);
  EXPECT_EQ(wrong_bits(1, 0, memory(5)), 0u);
}

// Goal: nothing is delivered outside poll(), nor before its time.
// Method: look after each half of the way.
TEST_F(SimDiskTest, DeliversFromPollOnly) {
  Completion completion;
  queue_.submit(request(Kind::kRead, 0), completion);
  EXPECT_EQ(queue_.poll(), 0u);
  EXPECT_EQ(queue_.in_flight(), 1u);
  while (!clock_.idle()) clock_.doze(kForever);
  EXPECT_TRUE(completion.pending());
  EXPECT_EQ(queue_.poll(), 1u);
  EXPECT_EQ(completion.bytes(), kPageBytes);
  EXPECT_EQ(queue_.in_flight(), 0u);
}

// Goal: a read at the end of the file is short, and past it reports 0 bytes.
// Method: reads that straddle and pass the end.
TEST_F(SimDiskTest, ReadsEndWithTheFile) {
  Completion straddling, past;
  queue_.submit({Kind::kRead, file_, (kPageCount - 1) * kPageBytes, memory(0, 2)}, straddling);
  queue_.submit({Kind::kRead, file_, kPageCount * kPageBytes, memory(2)}, past);
  drain();
  EXPECT_EQ(straddling.bytes(), kPageBytes);
  EXPECT_TRUE(past.status().ok());
  EXPECT_EQ(past.bytes(), 0u);
}

// Goal: open() refuses a file that exists and more bytes than are free, and says what is missing.
// Method: a second open, and one that is too large.
TEST_F(SimDiskTest, OpenNamesItsErrors) {
  const auto again = queue_.open("/mnt/file", kPageBytes);
  EXPECT_EQ(again.status().code(), Code::kInvalidArgument);
  EXPECT_NE(again.status().message().find("/mnt/file"), std::string::npos);
  const auto large = queue_.open("/mnt/large", SimDiskOptions().capacity_bytes);
  EXPECT_EQ(large.status().code(), Code::kOutOfSpace);
  EXPECT_NE(large.status().message().find("/mnt/large: 256.0 KiB missing"), std::string::npos)
      << large.status().message();
}

// Goal: eio and enospc come back as errors with their errno, enospc for writes only, and are
// counted. Method: certain faults.
TEST_F(SimDiskTest, InjectsErrors) {
  queue_.set_faults({.eio = 1.0});
  EXPECT_EQ(transfer(request(Kind::kRead, 0)).code(), Code::kIoError);
  queue_.set_faults({.enospc = 1.0});
  const Status full = transfer(request(Kind::kWrite, 0));
  EXPECT_EQ(full.code(), Code::kOutOfSpace);
  EXPECT_EQ(full.error_number(), ENOSPC);
  EXPECT_TRUE(transfer(request(Kind::kRead, 0)).ok());
  EXPECT_EQ(queue_.fault_counts().eio, 1u);
  EXPECT_EQ(queue_.fault_counts().enospc, 1u);
}

// Goal: a short transfer moves as much as it reports: some, aligned, not all.
// Method: certain faults on writes of 8 pages, compared with the truth; a single page cannot be
// short.
TEST_F(SimDiskTest, InjectsShortTransfers) {
  queue_.set_faults({.short_transfer = 1.0});
  fill(0, 8, 0x11);
  Completion completion;
  queue_.submit(request(Kind::kWrite, 0, 8), completion);
  drain();
  ASSERT_TRUE(completion.status().ok());
  EXPECT_GE(completion.bytes(), kPageBytes);
  EXPECT_LT(completion.bytes(), 8 * kPageBytes);
  EXPECT_EQ(completion.bytes() % kPageBytes, 0u);
  EXPECT_EQ(truth(completion.bytes() - 1), std::byte{0x11});
  EXPECT_EQ(truth(completion.bytes()), std::byte{0});
  EXPECT_EQ(queue_.fault_counts().short_transfer, 1u);
  EXPECT_TRUE(transfer(request(Kind::kWrite, 0)).ok());
  EXPECT_EQ(queue_.fault_counts().short_transfer, 1u);
}

// Goal: a bit flip is silent: one wrong bit, in the memory of a read or in the truth of a write, no
// error. Method: certain faults; count the wrong bits on both sides.
TEST_F(SimDiskTest, InjectsBitFlips) {
  fill(0, 4, 0x22);
  EXPECT_TRUE(transfer(request(Kind::kWrite, 0, 4)).ok());
  queue_.set_faults({.bit_flip = 1.0});
  EXPECT_TRUE(transfer(request(Kind::kRead, 0, 4)).ok());
  EXPECT_EQ(wrong_bits(4, 0x22, memory(0, 4)), 1u);

  fill(0, 4, 0x22);
  EXPECT_TRUE(transfer(request(Kind::kWrite, 0, 4)).ok());
  EXPECT_EQ(wrong_bits(4, 0x22, memory(0, 4)), 0u);
  std::vector<std::byte> stored(4 * kPageBytes);
  queue_.file("/mnt/file")->read(0, stored);
  EXPECT_EQ(wrong_bits(4, 0x22, stored), 1u);
  EXPECT_EQ(queue_.fault_counts().bit_flip, 2u);
}

// Goal: a request that never ends does so only after cancel(), with kTimeout; the others end well.
// Method: one of each, time until nothing happens, then cancel.
TEST_F(SimDiskTest, NeverEndsAtCancel) {
  Completion never, normal;
  queue_.set_faults({.never = 1.0});
  queue_.submit(request(Kind::kWrite, 0), never);
  drain();
  EXPECT_TRUE(never.pending());
  EXPECT_EQ(queue_.fault_counts().never, 1u);
  queue_.set_faults({});
  queue_.submit(request(Kind::kWrite, 1), normal);
  queue_.cancel();
  drain();
  EXPECT_EQ(never.status().code(), Code::kTimeout);
  EXPECT_TRUE(normal.status().ok());
  EXPECT_EQ(queue_.in_flight(), 0u);
}

// Goal: the bytes of a request that never ends may have moved, or not.
// Method: 32 such writes; count the pages that reached the file.
TEST_F(SimDiskTest, NeverMayHaveMoved) {
  fill(0, 32, 0x33);
  queue_.set_faults({.never = 1.0});
  std::deque<Completion> writes(32);
  for (uint64_t i = 0; i < 32; ++i) queue_.submit(request(Kind::kWrite, i), writes[i]);
  drain();
  uint64_t moved_count = 0;
  for (uint64_t i = 0; i < 32; ++i) moved_count += truth(i * kPageBytes) == std::byte{0x33};
  EXPECT_NEAR(static_cast<double>(moved_count), 16, 10);
  queue_.cancel();
  drain();
}

// Goal: a cancelled request no longer touches its memory.
// Method: reads that never end, of a disk with 1s, cancelled at once; the memory is cleared when
// they are done.
TEST_F(SimDiskTest, CancelledRequestsLetGo) {
  fill(0, 32, 0xff);
  EXPECT_TRUE(transfer(request(Kind::kWrite, 0, 32)).ok());
  queue_.set_faults({.never = 1.0, .reorder = 1.0});
  std::deque<Completion> reads(32);
  for (uint64_t i = 0; i < 32; ++i) queue_.submit(request(Kind::kRead, i), reads[i]);
  queue_.cancel();
  while (queue_.in_flight() > 0) {
    clock_.doze(kForever);
    queue_.poll();
  }
  EXPECT_FALSE(clock_.idle());
  fill(0, 32, 0);
  drain();
  EXPECT_EQ(wrong_bits(32, 0, memory(0, 32)), 0u);
}

// Goal: without faults requests end in order; with `reorder` or `slow` they overtake each other.
// Method: note the order in which completions get done, one event at a time.
TEST_F(SimDiskTest, ReordersOnRequest) {
  const auto order = [&] {
    std::deque<Completion> reads(16);
    std::vector<uint64_t> done;
    for (uint64_t i = 0; i < 16; ++i) queue_.submit(request(Kind::kRead, i), reads[i]);
    std::vector<bool> seen(16);
    while (done.size() < 16) {
      clock_.doze(kForever);
      queue_.poll();
      for (uint64_t i = 0; i < 16; ++i) {
        if (reads[i].done() && !seen[i]) done.push_back(i);
        seen[i] = reads[i].done();
      }
    }
    return done;
  };
  EXPECT_TRUE(std::ranges::is_sorted(order()));
  queue_.set_faults({.reorder = 0.5});
  EXPECT_FALSE(std::ranges::is_sorted(order()));
  EXPECT_GT(queue_.fault_counts().reorder, 0u);
  queue_.set_faults({.slow = 0.3});
  EXPECT_FALSE(std::ranges::is_sorted(order()));
  EXPECT_GT(queue_.fault_counts().slow, 0u);
}

// Goal: our own mistakes are checks: too many, unaligned, past the end of a file that would grow.
// Method: death tests.
TEST_F(SimDiskTest, ChecksRequests) {
  Completion completion;
  IoRequest odd = request(Kind::kRead, 0);
  odd.offset = 1;
  EXPECT_DEATH(queue_.submit(odd, completion), "offset");
  odd = request(Kind::kRead, 0, 2);
  odd.memory = odd.memory.subspan(1, kPageBytes);
  EXPECT_DEATH(queue_.submit(odd, completion), "memory");
  odd = request(Kind::kWrite, 0, 2);
  odd.offset = (kPageCount - 1) * kPageBytes;
  EXPECT_DEATH(queue_.submit(odd, completion), "file_bytes");
  std::deque<Completion> reads(queue_.depth());
  for (Completion& read : reads) queue_.submit(request(Kind::kRead, 0), read);
  EXPECT_DEATH(queue_.submit(request(Kind::kRead, 0), completion), "depth");
  drain();
}

class SimDiskRateTest : public SimDiskTest, public testing::WithParamInterface<double> {
 protected:
  static constexpr uint64_t kLatencyNs = 1000;
  SimDiskRateTest()
      : SimDiskTest({.latency_ns = kLatencyNs,
                     .read_bytes_per_ns = 2.0,
                     .write_bytes_per_ns = 1.0,
                     .duplex = GetParam()}) {}
};

// Goal: reads of R and writes of W nanoseconds take R + W - duplex * min(R, W), plus one latency.
// Method: 16 pages each way, submitted together, on a drive that is half, partly or fully duplex;
// once more after the drive was idle for a while.
TEST_P(SimDiskRateTest, TransfersTakeTheirTime) {
  const uint64_t read_ns = 16 * kPageBytes / 2;
  const uint64_t write_ns = 16 * kPageBytes;
  const auto saved_ns = static_cast<uint64_t>(GetParam() * read_ns);
  for (int round = 0; round < 2; ++round) {
    clock_.doze(1'000'000);
    const uint64_t start_ns = clock_.now_ns();
    std::deque<Completion> completions(32);
    for (uint64_t i = 0; i < 16; ++i) {
      queue_.submit(request(Kind::kRead, i), completions[i]);
      queue_.submit(request(Kind::kWrite, 32 + i), completions[16 + i]);
    }
    while (queue_.in_flight() > 0) {
      clock_.doze(kForever);
      queue_.poll();
    }
    EXPECT_EQ(clock_.now_ns() - start_ns, read_ns + write_ns - saved_ns + kLatencyNs);
  }
}

INSTANTIATE_TEST_SUITE_P(Duplex, SimDiskRateTest, testing::Values(0.0, 0.5, 1.0));

// One run of 200 transfers under every fault; its trace.
uint64_t traced_run(uint64_t seed) {
  SimClock clock;
  Trace trace;
  SimIoQueue queue(clock, {.depth = 8},
                   {.eio = 0.1,
                    .enospc = 0.1,
                    .short_transfer = 0.1,
                    .bit_flip = 0.1,
                    .slow = 0.1,
                    .never = 0.1,
                    .reorder = 0.3},
                   seed, &trace);
  struct alignas(kPageBytes) Memory {
    std::array<std::byte, 4 * kPageBytes> bytes = {};
  };
  std::vector<Memory> memory(8);
  const FileId file = *queue.open("file", sizeof(Memory));
  std::deque<Completion> completions(8);
  for (int turn = 0; turn < 25; ++turn) {
    for (uint64_t i = 0; i < 8; ++i) {
      const Kind kind = (i + turn) % 2 == 0 ? Kind::kRead : Kind::kWrite;
      queue.submit({kind, file, 0, memory[i].bytes}, completions[i]);
    }
    queue.poll();
    while (!clock.idle()) {
      clock.doze(kForever);
      queue.poll();
    }
    queue.cancel();
    queue.poll();
    while (!clock.idle()) {
      clock.doze(kForever);
      queue.poll();
    }
  }
  return trace.hash();
}

// Goal: a run is a function of its seed.
// Method: two runs of one seed, one of another.
TEST(SimDisk, SameSeedSameTrace) {
  EXPECT_EQ(traced_run(1), traced_run(1));
  EXPECT_NE(traced_run(1), traced_run(2));
}

// Goal: the truth holds any range at any offset, and zeros cost nothing.
// Method: ranges over block borders against a plain vector; a terabyte that stays empty.
TEST(SparseFile, HoldsRangesAndSkipsZeros) {
  SparseFile file(uint64_t{1} << 40);
  std::vector<std::byte> zeros(200'000), bytes(200'000), read(200'002);
  file.write((uint64_t{1} << 40) - zeros.size(), zeros);
  EXPECT_EQ(file.stored_bytes(), 0u);
  for (uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  file.write(65'000, bytes);
  EXPECT_LE(file.stored_bytes(), 6u << 16);
  file.read(64'999, read);
  EXPECT_EQ(read.front(), std::byte{0});
  EXPECT_EQ(read.back(), std::byte{0});
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), read.begin() + 1));
  file.write(65'000, zeros);  // over bytes that are there, zeros must be stored
  file.flip_bit(65'000, 3);
  file.read(65'000, HostSpan(read).first(2));
  EXPECT_EQ(read[0], std::byte{8});
  EXPECT_EQ(read[1], std::byte{0});
}

}  // namespace
}  // namespace zoffload
