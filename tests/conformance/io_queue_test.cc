// What every IoQueue promises, over all implementations in the table. Time passes only through a
// row's pump().
#include <deque>
#include <random>
#include <vector>

#include "core/base/types.h"
#include "tests/conformance/io_queue_factories.h"

namespace zoffload::test {
namespace {

constexpr uint64_t kPage = kPageBytes;
using Kind = IoRequest::Kind;

// Goal: what was written is what is read, for many sizes and places. Method: random bytes go out
// from one buffer and come back into another; a page on either side must keep what it had.
TEST_P(IoQueueTest, RoundTripsAtManySizesAndOffsets) {
  constexpr uint64_t kFilePages = 1024;
  const FileId file = open_file("round", kFilePages * kPage);
  AlignedMemory from(kFilePages * kPage);
  AlignedMemory to(kFilePages * kPage);
  std::mt19937_64 random(1);
  ASSERT_EQ(kPage % queue_->alignment(), 0u);
  fill_random(from.span(), random);
  ASSERT_TRUE(write_all(*queue_, pump_, file, 0, from.span()).ok());

  for (const uint64_t pages : {1, 2, 3, 7, 16, 64, 255, 256, 512}) {
    for (const uint64_t first : {uint64_t{1}, uint64_t{5}, kFilePages - 1 - pages}) {
      const HostSpan sent = from.part(first * kPage, pages * kPage);
      fill_random(sent, random);
      ASSERT_TRUE(write_all(*queue_, pump_, file, first * kPage, sent).ok());
      const HostSpan around = from.part((first - 1) * kPage, (pages + 2) * kPage);
      const HostSpan received = to.part(0, around.size());
      ASSERT_TRUE(read_all(*queue_, pump_, file, (first - 1) * kPage, received).ok());
      ASSERT_TRUE(same_bytes(around, received)) << pages << " pages at page " << first;
    }
  }
}

// Goal: with the queue full, every request moves its own bytes. Method: reads and writes on
// disjoint ranges, seeded, as many in flight as the queue takes, each checked against a model of
// the file in memory.
TEST_P(IoQueueTest, ManyInFlightAgreeWithAModel) {
  constexpr uint64_t kRangePages = 16;
  constexpr uint64_t kRangeBytes = kRangePages * kPage;
  constexpr int kRequests = 800;
  const uint32_t depth = queue_->depth();
  const uint64_t ranges = 2 * uint64_t{depth};
  const FileId file = open_file("model", ranges * kRangeBytes);
  AlignedMemory model(ranges * kRangeBytes);
  AlignedMemory buffers(ranges * kRangeBytes);  // the buffer of a range is used by its one request
  ASSERT_TRUE(write_all(*queue_, pump_, file, 0, model.span()).ok());

  std::mt19937_64 random(2);
  std::deque<Completion> completions(ranges);
  std::vector<IoRequest> requests(ranges);
  std::vector<bool> busy(ranges);
  uint32_t most = 0;
  int started = 0;
  int checked = 0;
  while (checked < kRequests) {
    while (started < kRequests && queue_->in_flight() < depth) {
      const uint64_t range = random() % ranges;
      if (busy[range]) continue;
      const uint64_t first = random() % kRangePages;
      const uint64_t pages = 1 + random() % (kRangePages - first);
      const uint64_t offset = range * kRangeBytes + first * kPage;
      const HostSpan memory = buffers.part(offset, pages * kPage);
      fill_random(memory, random);
      requests[range] = {random() % 2 == 0 ? Kind::kRead : Kind::kWrite, file, offset, memory};
      queue_->submit(requests[range], completions[range]);
      busy[range] = true;
      ++started;
    }
    most = std::max(most, queue_->in_flight());
    if (queue_->poll() == 0) pump_();
    for (uint64_t range = 0; range < ranges; ++range) {
      if (!busy[range] || !completions[range].done()) continue;
      ASSERT_TRUE(completions[range].status().ok()) << completions[range].status().to_string();
      const uint64_t moved = completions[range].bytes();
      ASSERT_GT(moved, 0u);
      ASSERT_LE(moved, requests[range].memory.size());
      const HostSpan theirs = requests[range].memory.first(moved);
      const HostSpan ours = model.part(requests[range].offset, moved);
      if (requests[range].kind == Kind::kWrite) {
        std::copy(theirs.begin(), theirs.end(), ours.begin());
      } else {
        ASSERT_TRUE(same_bytes(ours, theirs)) << "range " << range;
      }
      busy[range] = false;
      ++checked;
    }
  }
  EXPECT_EQ(most, depth);
  EXPECT_EQ(queue_->in_flight(), 0u);
  AlignedMemory whole(ranges * kRangeBytes);
  ASSERT_TRUE(read_all(*queue_, pump_, file, 0, whole.span()).ok());
  EXPECT_TRUE(same_bytes(model.span(), whole.span()));
}

// Goal: a completion changes only inside poll(). Method: after submit, and after time has passed,
// it is still pending and counted; poll() then says how many it delivered.
TEST_P(IoQueueTest, OnlyPollDelivers) {
  const FileId file = open_file("poll", kPage);
  AlignedMemory memory(kPage);
  Completion completion;
  queue_->submit({Kind::kWrite, file, 0, memory.span()}, completion);
  EXPECT_TRUE(completion.pending());
  EXPECT_EQ(queue_->in_flight(), 1u);
  pump_();
  EXPECT_TRUE(completion.pending());
  uint32_t delivered = 0;
  while (delivered == 0) {
    EXPECT_TRUE(completion.pending());
    delivered = queue_->poll();
    if (delivered == 0) pump_();
  }
  EXPECT_EQ(delivered, 1u);
  EXPECT_TRUE(completion.done());
  EXPECT_EQ(completion.bytes(), kPage);
  EXPECT_EQ(queue_->poll(), 0u);
}

// Goal: a flush completes, moves no bytes and loses none. Method: write, flush, read.
TEST_P(IoQueueTest, FlushKeepsTheBytes) {
  const FileId file = open_file("flush", 4 * kPage);
  AlignedMemory from(4 * kPage);
  AlignedMemory to(4 * kPage);
  std::mt19937_64 random(3);
  fill_random(from.span(), random);
  ASSERT_TRUE(write_all(*queue_, pump_, file, 0, from.span()).ok());
  const Outcome flushed = run(*queue_, pump_, {Kind::kFlush, file});
  EXPECT_TRUE(flushed.status.ok()) << flushed.status.to_string();
  EXPECT_EQ(flushed.bytes, 0u);
  ASSERT_TRUE(read_all(*queue_, pump_, file, 0, to.span()).ok());
  EXPECT_TRUE(same_bytes(from.span(), to.span()));
}

// Goal: the end of a file is a short read and then zero bytes, never an error. Method: read across
// it and behind it.
TEST_P(IoQueueTest, ReadsEndAtTheEndOfTheFile) {
  const FileId file = open_file("end", 5 * kPage);
  AlignedMemory memory(8 * kPage);
  std::mt19937_64 random(4);
  fill_random(memory.span(), random);
  ASSERT_TRUE(write_all(*queue_, pump_, file, 0, memory.part(0, 5 * kPage)).ok());
  const Outcome across =
      run(*queue_, pump_, {Kind::kRead, file, 3 * kPage, memory.part(0, 4 * kPage)});
  EXPECT_TRUE(across.status.ok()) << across.status.to_string();
  EXPECT_EQ(across.bytes, 2 * kPage);
  const Outcome behind = run(*queue_, pump_, {Kind::kRead, file, 5 * kPage, memory.part(0, kPage)});
  EXPECT_TRUE(behind.status.ok()) << behind.status.to_string();
  EXPECT_EQ(behind.bytes, 0u);
}

// Goal: files do not mix. Method: two files get different bytes at the same offset, in flight
// together.
TEST_P(IoQueueTest, FilesAreSeparate) {
  AlignedMemory from(2 * kPage);
  AlignedMemory to(2 * kPage);
  std::mt19937_64 random(5);
  fill_random(from.span(), random);
  std::deque<Completion> completions(2);
  std::vector<FileId> files;
  for (uint64_t i = 0; i < 2; ++i) files.push_back(open_file("file" + std::to_string(i), kPage));
  EXPECT_NE(files[0], files[1]);
  for (uint64_t i = 0; i < 2; ++i) {
    queue_->submit({Kind::kWrite, files[i], 0, from.part(i * kPage, kPage)}, completions[i]);
  }
  drain(*queue_, pump_);
  for (uint64_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(read_all(*queue_, pump_, files[i], 0, to.part(i * kPage, kPage)).ok());
  }
  EXPECT_TRUE(same_bytes(from.span(), to.span()));
}

// Goal: open() never takes over a file. Method: open the same path twice; the second fails by name,
// and the bytes written through the first are still there.
TEST_P(IoQueueTest, OpenRefusesAnExistingFile) {
  const FileId file = open_file("twice", 2 * kPage);
  AlignedMemory from(2 * kPage);
  AlignedMemory to(2 * kPage);
  std::mt19937_64 random(6);
  fill_random(from.span(), random);
  ASSERT_TRUE(write_all(*queue_, pump_, file, 0, from.span()).ok());
  const auto again = queue_->open(folder_.file("twice"), 2 * kPage);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().code(), Code::kInvalidArgument);
  EXPECT_NE(again.status().message().find(folder_.file("twice")), std::string::npos);
  ASSERT_TRUE(read_all(*queue_, pump_, file, 0, to.span()).ok());
  EXPECT_TRUE(same_bytes(from.span(), to.span()));
}

// Goal: a file that cannot fit is an error at open() and leaves nothing. Method: ask for 32 PiB,
// then open the same path with a size that fits.
TEST_P(IoQueueTest, OpenSaysWhenTheSpaceIsMissing) {
  const auto huge = queue_->open(folder_.file("huge"), uint64_t{1} << 55);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), Code::kOutOfSpace) << huge.status().to_string();
  EXPECT_NE(huge.status().message().find(folder_.file("huge")), std::string::npos);
  open_file("huge", kPage);
}

// Goal: registered memory, other memory and memory that lies across the arena's end all work.
// Method: the same bytes go out from one kind and come back into the others.
TEST_P(IoQueueTest, ArenaIsRegisteredAndOtherMemoryStillWorks) {
  constexpr uint64_t kBytes = 8 * kPage;
  AlignedMemory all(4 * kBytes);
  const HostSpan inside = all.part(0, kBytes);
  const HostSpan across = all.part(2 * kBytes - kPage, kBytes);
  const HostSpan outside = all.part(3 * kBytes, kBytes);
  const auto registered = queue_->register_arena(all.part(0, 2 * kBytes));
  ASSERT_TRUE(registered.ok()) << registered.status().to_string();
  std::mt19937_64 random(7);
  fill_random(inside, random);
  const FileId file = open_file("arena", 2 * kBytes);
  ASSERT_TRUE(write_all(*queue_, pump_, file, 0, inside).ok());
  ASSERT_TRUE(read_all(*queue_, pump_, file, 0, outside).ok());
  EXPECT_TRUE(same_bytes(inside, outside));
  ASSERT_TRUE(read_all(*queue_, pump_, file, 0, across).ok());
  EXPECT_TRUE(same_bytes(inside, across));
  ASSERT_TRUE(write_all(*queue_, pump_, file, kBytes, outside).ok());
  std::fill(inside.begin(), inside.end(), std::byte{0});
  ASSERT_TRUE(read_all(*queue_, pump_, file, kBytes, inside).ok());
  EXPECT_TRUE(same_bytes(outside, inside));
}

// Goal: after cancel() all comes back, finished or with kTimeout, and the queue goes on. Method:
// fill the queue, let one poll pass, add one that the storage has not seen, cancel, drain, and then
// write and read once more.
TEST_P(IoQueueTest, CancelGivesEverythingBack) {
  const uint32_t depth = queue_->depth();
  const FileId file = open_file("cancel", depth * kPage);
  AlignedMemory memory(depth * kPage);
  std::deque<Completion> completions(depth);
  uint32_t delivered = 0;
  for (uint32_t i = 0; i < depth; ++i) {
    if (i + 1 == depth) delivered += queue_->poll();
    queue_->submit({Kind::kWrite, file, i * kPage, memory.part(i * kPage, kPage)}, completions[i]);
  }
  queue_->cancel();
  while (queue_->in_flight() > 0) {
    const uint32_t count = queue_->poll();
    delivered += count;
    if (count == 0) pump_();
  }
  EXPECT_EQ(delivered, depth);
  for (const Completion& completion : completions) {
    ASSERT_TRUE(completion.done());
    const Status& status = completion.status();
    EXPECT_TRUE(status.ok() || status.code() == Code::kTimeout) << status.to_string();
  }
  EXPECT_TRUE(write_all(*queue_, pump_, file, 0, memory.span()).ok());
  EXPECT_TRUE(read_all(*queue_, pump_, file, 0, memory.span()).ok());
}

// Goal: a cancelled queue may be destroyed at once; the storage then owns no memory of ours and
// every completion is written. Method: fill, poll, cancel, destroy.
TEST_P(IoQueueTest, DestructionAfterCancelFinishesEveryCompletion) {
  const uint32_t depth = queue_->depth();
  const FileId file = open_file("destroy", depth * kPage);
  AlignedMemory memory(depth * kPage);
  std::deque<Completion> completions(depth);
  for (uint32_t i = 0; i < depth; ++i) {
    queue_->submit({Kind::kWrite, file, i * kPage, memory.part(i * kPage, kPage)}, completions[i]);
  }
  queue_->poll();
  queue_->cancel();
  queue_.reset();
  for (const Completion& completion : completions) EXPECT_TRUE(completion.done());
}

}  // namespace
}  // namespace zoffload::test
