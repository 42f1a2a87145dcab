// How transfers become blocks in flight: their order, the caps, what a short transfer leaves,
// errors and cancel.
#include "tiers/transfer_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string>

#include "core/base/types.h"
#include "core/sim/random.h"
#include "cuda/host_device.h"
#include "tests/conformance/memory_queue.h"

namespace zoffload {
namespace {

constexpr uint64_t kBlock = 4 * kPageBytes;
constexpr uint64_t kFileBytes = 512 * kPageBytes;

struct TransferQueueTest : testing::Test {
  TransferQueueTest() { file = queue.open("a", kFileBytes).value(); }
  HostSpan memory(uint64_t bytes) { return device.allocate_pinned(bytes).value(); }
  // One letter for each request since `first`: which file, in capitals for writes.
  std::string order(size_t first = 0) const {
    std::string letters;
    for (size_t i = first; i < queue.requests().size(); ++i) {
      const IoRequest& request = queue.requests()[i];
      const char base = request.kind == IoRequest::Kind::kRead ? 'a' : 'A';
      letters += static_cast<char>(base + static_cast<int>(request.file));
    }
    return letters;
  }
  void drain(TransferQueue& transfers) {
    for (int polls = 0; polls < 10'000 && !transfers.idle(); ++polls) transfers.poll();
    ASSERT_TRUE(transfers.idle());
  }

  HostDevice device;
  MemoryQueue queue{8};
  FileId file = 0;
};

// Goal: demand goes before prefetch, prefetch before writes, and each class in order of arrival,
// whatever the order of the calls. Method: depth one, six transfers of two blocks, each on a file
// of its own.
TEST_F(TransferQueueTest, ClassesThenArrival) {
  for (int i = 1; i < 7; ++i) queue.open("more", kFileBytes).value();
  TransferQueue transfers(queue, kBlock);
  transfers.set_depth(1);
  const HostSpan bytes = memory(2 * kBlock);
  Completion done[7];
  transfers.write(0, bytes, 0, done[0]);  // its first block leaves at once
  transfers.write(1, bytes, 0, done[1]);
  transfers.read(2, 0, bytes, Urgency::kPrefetch, done[2]);
  transfers.read(3, 0, bytes, Urgency::kDemand, done[3]);
  transfers.read(4, 0, bytes, Urgency::kPrefetch, done[4]);
  transfers.read(5, 0, bytes, Urgency::kDemand, done[5]);
  transfers.write(6, bytes, 0, done[6]);
  drain(transfers);
  EXPECT_EQ(order(),
            "Addffccee"
            "ABBGG");
  for (const Completion& completion : done) EXPECT_EQ(completion.bytes(), 2 * kBlock);
}

// Goal: while a read is wanted, writes hold half of the depth and no more, and all of it when none
// is; a depth of one still lets them through. Method: long writes, then a read that comes and goes;
// the requests in flight are counted by kind.
TEST_F(TransferQueueTest, WritesHoldHalfWhileReadsAreWanted) {
  TransferQueue transfers(queue, kBlock);
  const HostSpan bytes = memory(64 * kBlock);
  Completion write, read;
  transfers.read(file, 0, bytes.first(20 * kBlock), Urgency::kPrefetch, read);
  EXPECT_EQ(order(), "aaaaaaaa");
  transfers.write(file, bytes, 0, write);
  while (read.pending()) transfers.poll();
  const std::string mixed = order();
  // The read's 20 blocks come first; what is beside its last four may be writes, at most four.
  EXPECT_EQ(std::count(mixed.begin(), mixed.end(), 'a'), 20);
  EXPECT_EQ(mixed.substr(0, 20), std::string(20, 'a'));
  EXPECT_EQ(mixed.substr(20, 4), "AAAA");
  Completion more;
  transfers.write(file, bytes.first(kBlock), 0, more);
  EXPECT_EQ(transfers.in_flight(), 8u);  // writes alone take all
  transfers.set_depth(1);
  drain(transfers);
  EXPECT_TRUE(write.status().ok());
}

// Goal: a read that comes while writes fill the drive finds half of the depth within one turn of
// the drive. Method: writes at full depth, a read of many blocks; in the next sixteen requests.
TEST_F(TransferQueueTest, ReadsOvertakeWrites) {
  TransferQueue transfers(queue, kBlock);
  const HostSpan bytes = memory(64 * kBlock);
  Completion write, read;
  transfers.write(file, bytes, 0, write);
  transfers.read(file, 0, bytes.first(16 * kBlock), Urgency::kDemand, read);
  EXPECT_EQ(order(), "AAAAAAAA");
  while (read.pending()) transfers.poll();
  EXPECT_EQ(order().substr(0, 24), "AAAAAAAAaaaaaaaaaaaaaaaa");
  drain(transfers);
}

// Goal: set_depth() is obeyed at once for what is sent, and nothing is called back. Method: down
// and up again in the middle of a transfer.
TEST_F(TransferQueueTest, DepthCanChangeAtAnyTime) {
  TransferQueue transfers(queue, kBlock);
  const HostSpan bytes = memory(64 * kBlock);
  Completion write;
  transfers.write(file, bytes, 0, write);
  EXPECT_EQ(transfers.in_flight(), 8u);
  EXPECT_TRUE(transfers.saturated());
  transfers.set_depth(3);
  EXPECT_EQ(transfers.in_flight(), 8u);
  transfers.poll();
  EXPECT_LE(transfers.in_flight(), 3u);
  transfers.set_depth(5);
  transfers.poll();
  EXPECT_LE(transfers.in_flight(), 5u);
  EXPECT_GT(transfers.moved_bytes(), 0u);
  drain(transfers);
  EXPECT_FALSE(transfers.saturated());
  EXPECT_EQ(transfers.moved_bytes(), bytes.size());
}

// Goal: fill() repeats one block over the whole range, its odd end included. Method: 5 blocks and a
// page.
TEST_F(TransferQueueTest, FillRepeats) {
  TransferQueue transfers(queue, kBlock);
  const HostSpan block = memory(kBlock);
  for (uint64_t i = 0; i < kBlock; ++i) block[i] = static_cast<std::byte>(i * 7 >> 3);
  Completion filled;
  const uint64_t bytes = 5 * kBlock + kPageBytes;
  transfers.fill(file, block, bytes, filled);
  drain(transfers);
  EXPECT_EQ(filled.bytes(), bytes);
  const std::vector<std::byte>& truth = queue.file(file);
  for (uint64_t at = 0; at < bytes; ++at) ASSERT_EQ(truth[at], block[at % kBlock]) << at;
  EXPECT_EQ(truth[bytes], std::byte{0xee});
}

// Goal: cancel() ends also what waits for a request that never comes back, once that one does.
// Method: short blocks, cancelled at several moments; nothing new is sent, nothing ends in
// cancel().
TEST_F(TransferQueueTest, CancelEndsAllInPoll) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MemoryQueue shuffled(4, seed);
    const FileId id = shuffled.open("a", kFileBytes).value();
    shuffled.short_transfers(true);
    TransferQueue transfers(shuffled, kBlock);
    const HostSpan bytes = memory(16 * kBlock);
    Completion read, write;
    transfers.write(id, bytes, 0, write);
    transfers.read(id, 0, bytes, Urgency::kDemand, read);
    for (uint64_t polls = 0; polls < seed % 5; ++polls) transfers.poll();
    const size_t request_count = shuffled.requests().size();
    transfers.cancel();
    EXPECT_TRUE(read.pending());
    EXPECT_TRUE(write.pending());
    drain(transfers);
    EXPECT_EQ(read.status().code(), Code::kTimeout);
    EXPECT_EQ(write.status().code(), Code::kTimeout);
    EXPECT_EQ(shuffled.requests().size(), request_count);
  }
}

// ---- The rules, checked at every request by a model that knows only what was asked and what came
// back.

enum Line : size_t { kDemandLine, kPrefetchLine, kWriteLine };

struct Asked {
  size_t line;
  uint64_t begin;  // of its range of the file; no two ranges meet
  HostSpan memory;
  uint64_t in_flight_bytes = 0;
  uint64_t moved_bytes = 0;
  uint32_t in_flight = 0;
  bool failed = false;
  Completion done;

  bool waits() const {
    return !failed && moved_bytes + in_flight_bytes < memory.size() && !done.done();
  }
};

class ModelQueue : public IoQueue {
 public:
  ModelQueue(uint32_t depth, uint64_t seed) : depth_(depth), random_(seed) {}

  Result<FileId> open(const std::string&, uint64_t bytes) override {
    truth_.resize(bytes);
    for (uint64_t at = 0; at < bytes; ++at) truth_[at] = static_cast<std::byte>(at * 31 >> 4);
    return FileId{0};
  }
  Result<std::string> register_arena(HostSpan) override { return std::string(); }
  uint64_t alignment() const override { return kPageBytes; }
  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return static_cast<uint32_t>(requests_.size()); }
  const char* name() const override { return "model"; }
  void cancel() override { cancelled_ = true; }

  void submit(const IoRequest& request, Completion& completion) override {
    ZO_CHECK(request.memory.size() <= kBlock);
    Asked& asked = owner(request.offset);
    check_order(asked);
    asked.in_flight_bytes += request.memory.size();
    ++asked.in_flight;
    completion.start();
    requests_.push_back({request, &completion});
    EXPECT_LE(in_flight(), depth_now);
    if (asked.line == kWriteLine) {
      EXPECT_LE(writes_in_flight(), reads_wanted() ? std::max(1u, depth_now / 2) : depth_now);
    }
  }

  uint32_t poll() override {
    uint32_t moved = 0;
    for (uint64_t i = random_.below(requests_.size() + 1); i > 0; --i, ++moved) {
      std::swap(requests_[random_.below(requests_.size())], requests_.back());
      const InFlight done = requests_.back();
      requests_.pop_back();
      perform(done);
    }
    return moved;
  }

  // Nothing waits for which there is room.
  void check_full() const {
    if (in_flight() >= depth_now) return;
    for (const Asked& other : asked) {
      if (!other.waits()) continue;
      EXPECT_EQ(other.line, size_t{kWriteLine});
      EXPECT_TRUE(reads_wanted());
      EXPECT_GE(writes_in_flight(), std::max(1u, depth_now / 2));
    }
  }

  std::deque<Asked> asked;  // in the order of the calls
  uint32_t depth_now = 0;   // as set_depth() was told
  const std::vector<std::byte>& truth() const { return truth_; }

 private:
  struct InFlight {
    IoRequest request;
    Completion* completion;
  };

  Asked& owner(uint64_t offset) {
    for (Asked& candidate : asked) {
      if (offset - candidate.begin < candidate.memory.size()) return candidate;
    }
    ZO_CHECK(false);
    return asked.front();
  }

  void check_order(const Asked& asked_now) const {
    EXPECT_TRUE(asked_now.waits());
    bool older = true;
    for (const Asked& other : asked) {
      if (&other == &asked_now) older = false;
      if (!other.waits() || &other == &asked_now) continue;
      EXPECT_GE(other.line, asked_now.line) << "a more urgent block waits";
      // What is left of a short block may belong to a younger transfer than the one being cut.
      if (other.line == asked_now.line && older && !shortened_) {
        ADD_FAILURE() << "an older transfer waits";
      }
    }
  }

  bool reads_wanted() const {
    return std::any_of(asked.begin(), asked.end(), [](const Asked& other) {
      return other.line != kWriteLine && other.done.pending();
    });
  }
  uint32_t writes_in_flight() const {
    uint32_t count = 0;
    for (const Asked& other : asked) count += other.line == kWriteLine ? other.in_flight : 0;
    return count;
  }

  void perform(const InFlight& done) {
    Asked& from = owner(done.request.offset);
    const uint64_t asked_bytes = done.request.memory.size();
    from.in_flight_bytes -= asked_bytes;
    --from.in_flight;
    if (cancelled_ || random_.chance(0.01)) {
      from.failed = true;
      return done.completion->finish(Status::from_errno(EIO, "model"));
    }
    uint64_t bytes = asked_bytes;
    if (asked_bytes > kPageBytes && random_.chance(0.1)) {
      bytes = kPageBytes;
      shortened_ = true;
    }
    from.moved_bytes += bytes;
    std::byte* const there = truth_.data() + done.request.offset;
    if (done.request.kind == IoRequest::Kind::kRead) {
      std::memcpy(done.request.memory.data(), there, bytes);
    } else {
      std::memcpy(there, done.request.memory.data(), bytes);
    }
    done.completion->finish(Status(), bytes);
  }

  const uint32_t depth_;
  Random random_;
  bool cancelled_ = false;
  bool shortened_ = false;
  std::vector<std::byte> truth_;
  std::vector<InFlight> requests_;
};

void run_against_model(uint64_t seed, HostSpan memory) {
  Random random(seed);
  for (uint64_t& word : elements<uint64_t>(memory)) word = random.next();
  ModelQueue queue(1 + static_cast<uint32_t>(random.below(12)), seed + 1);
  TransferQueue transfers(queue, kBlock);
  queue.depth_now = queue.depth();
  EXPECT_EQ(queue.open("a", memory.size()).value(), 0u);
  const std::vector<std::byte> written(memory.begin(), memory.end());
  const std::vector<std::byte> before = queue.truth();

  uint64_t begin = 0;
  for (int turn = 0; turn < 200; ++turn) {
    if (random.chance(0.2) && begin + 20 * kPageBytes <= memory.size()) {
      const uint64_t bytes = (1 + random.below(20)) * kPageBytes;
      Asked& next = queue.asked.emplace_back();
      next.line = random.below(3);
      next.begin = begin;
      next.memory = memory.subspan(begin, bytes);
      begin += bytes;
      if (next.line == kWriteLine) {
        transfers.write(0, next.memory, next.begin, next.done);
      } else {
        transfers.read(0, next.begin, next.memory, static_cast<Urgency>(next.line), next.done);
      }
      queue.check_full();
    } else if (random.chance(0.05)) {
      queue.depth_now = 1 + static_cast<uint32_t>(random.below(queue.depth()));
      transfers.set_depth(queue.depth_now);
      while (transfers.in_flight() > queue.depth_now) transfers.poll();
    } else {
      transfers.poll();
    }
    EXPECT_EQ(transfers.in_flight(), queue.in_flight());
  }
  if (seed % 5 == 0) transfers.cancel();
  for (int polls = 0; polls < 100'000 && !transfers.idle(); ++polls) transfers.poll();
  ASSERT_TRUE(transfers.idle());

  for (const Asked& each : queue.asked) {
    ASSERT_TRUE(each.done.done());
    EXPECT_TRUE(seed % 5 == 0 || each.done.status().ok() == !each.failed);
    if (!each.done.status().ok()) continue;
    EXPECT_EQ(each.done.bytes(), each.memory.size());
    const bool is_write = each.line == kWriteLine;
    const std::byte* const expected = (is_write ? written : before).data() + each.begin;
    const std::byte* const there =
        is_write ? queue.truth().data() + each.begin : each.memory.data();
    EXPECT_EQ(std::memcmp(there, expected, each.memory.size()), 0);
  }
}

// Goal: for any mix of transfers, depths, short blocks and errors: the order of classes, the caps,
// no idle room, every byte in its place, every transfer answered once. Method: 200 seeds; a queue
// that checks the rules at each request and answers in any order.
TEST_F(TransferQueueTest, FollowsTheRulesForAnySeed) {
  const HostSpan bytes = memory(256 * kPageBytes);
  for (uint64_t seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_against_model(seed, bytes);
  }
}

}  // namespace
}  // namespace zoffload
