// The rows of aio/, and what its queues promise beyond the port because their files are real.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <thread>

#include "aio/io_uring_queue.h"
#include "aio/libaio_queue.h"
#include "aio/probe.h"
#include "aio/thread_queue.h"
#include "tests/conformance/io_queue_factories.h"

namespace zoffload::test {
namespace {

constexpr uint64_t kPage = kPageBytes;
using Kind = IoRequest::Kind;

OpenedQueue open_uring(bool want_direct, RingRung rung = RingRung::kDeferTaskrun) {
  auto queue = IoUringQueue::create({.depth = 32, .want_direct = want_direct, .first_rung = rung});
  if (!queue.ok()) return {nullptr, nullptr, queue.status().message()};
  return {std::move(queue.value()), std::this_thread::yield, ""};
}

// Not where files would be buffered: it refuses them.
OpenedQueue open_libaio() {
  const IoProbe probe = probe_path(std::filesystem::current_path());
  if (!probe.direct) return {nullptr, nullptr, "no direct files here: " + probe.why_not_direct};
  auto queue = LibaioQueue::create({.depth = 32});
  if (!queue.ok()) return {nullptr, nullptr, queue.status().message()};
  return {std::move(queue.value()), std::this_thread::yield, ""};
}

OpenedQueue open_threads(bool want_direct) {
  const IoQueueOptions options = {.depth = 32, .want_direct = want_direct};
  return {std::make_unique<ThreadQueue>(options), std::this_thread::yield, ""};
}

const IoQueueRow kAioRows[] = {
    {"io_uring", [] { return open_uring(true); }},
    {"io_uring_buffered", [] { return open_uring(false); }},
    {"io_uring_coop_taskrun", [] { return open_uring(true, RingRung::kCoopTaskrun); }},
    {"io_uring_plain", [] { return open_uring(true, RingRung::kPlain); }},
    {"libaio", open_libaio},
    {"threads", [] { return open_threads(true); }},
    {"threads_buffered", [] { return open_threads(false); }},
};

class AioQueueTest : public IoQueueTest {
 protected:
  FileQueue& file_queue() { return dynamic_cast<FileQueue&>(*queue_); }

  File unnamed(uint64_t bytes) {
    const bool direct = GetParam().name.find("buffered") == std::string::npos;
    auto file = File::create_unnamed(folder_.path(), bytes, direct);
    ZO_CHECK(file.ok());
    return std::move(file.value());
  }
};

INSTANTIATE_TEST_SUITE_P(Aio, IoQueueTest, testing::ValuesIn(kAioRows), row_name);
INSTANTIATE_TEST_SUITE_P(Aio, AioQueueTest, testing::ValuesIn(kAioRows), row_name);

bool contains(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

// Goal: the file has its size and its space from the start. Method: ask the file system.
TEST_P(AioQueueTest, SpaceIsReserved) {
  constexpr uint64_t kBytes = 300 * kPage + 512;  // the size need not be a whole number of pages
  open_file("reserved", kBytes);
  struct stat facts = {};
  ASSERT_EQ(stat(folder_.file("reserved").c_str(), &facts), 0);
  EXPECT_EQ(static_cast<uint64_t>(facts.st_size), kBytes);
  EXPECT_GE(static_cast<uint64_t>(facts.st_blocks) * 512, kBytes);
}

// Goal: direct I/O is used exactly where it is wanted and exists. Method: find the descriptor in
// /proc and read its flags.
TEST_P(AioQueueTest, DirectWhereWantedAndPossible) {
  open_file("direct", kPage);
  const bool wanted = GetParam().name.find("buffered") == std::string::npos;
  const bool expected = wanted && probe_path(folder_.path()).direct;
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry.path(), ignored) != folder_.file("direct")) continue;
    const int fd = std::stoi(entry.path().filename());
    EXPECT_EQ((fcntl(fd, F_GETFL) & O_DIRECT) != 0, expected);
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    ++found;
  }
  EXPECT_EQ(found, 1);
}

// Goal: a file of somebody else survives open(). Method: make one, open it, read it.
TEST_P(AioQueueTest, OpenLeavesAForeignFileAsItWas) {
  const std::string path = folder_.file("foreign");
  std::ofstream(path) << "precious";
  const auto opened = queue_->open(path, kPage);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(opened.status().error_number(), EEXIST);
  EXPECT_TRUE(contains(opened.status(), path)) << opened.status().to_string();
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "precious");
}

// Goal: a wrong folder is the caller's to change, and is named. Method: a missing folder, a file in
// a folder's place and a folder that even root cannot write to.
TEST_P(AioQueueTest, OpenNamesAFolderThatCannotBeUsed) {
  std::ofstream(folder_.file("plain")) << "x";
  for (const std::string& path : {folder_.file("missing/data"), folder_.file("plain/data"),
                                  std::string("/sys/kernel/data")}) {
    const auto opened = queue_->open(path, kPage);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), Code::kInvalidArgument) << opened.status().to_string();
    EXPECT_TRUE(contains(opened.status(), path)) << opened.status().to_string();
  }
}

// Goal: missing space is told in bytes and leaves no file. Method: 32 PiB, then look.
TEST_P(AioQueueTest, MissingSpaceIsToldInBytes) {
  constexpr uint64_t kBytes = uint64_t{1} << 55;
  const std::string path = folder_.file("huge");
  const auto opened = queue_->open(path, kBytes);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::kOutOfSpace);
  EXPECT_TRUE(contains(opened.status(), std::to_string(kBytes))) << opened.status().to_string();
  EXPECT_TRUE(contains(opened.status(), "free are")) << opened.status().to_string();
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Goal: what the kernel refuses comes back as a Status with its errno. Method: a file that was
// never opened, and memory that nobody may touch.
TEST_P(AioQueueTest, KernelErrorsBecomeStatus) {
  AlignedMemory memory(kPage);
  const Outcome unknown = run(*queue_, pump_, {Kind::kRead, 77, 0, memory.span()});
  EXPECT_EQ(unknown.status.error_number(), EBADF) << unknown.status.to_string();
  EXPECT_TRUE(contains(unknown.status, "file 77"));

  const FileId file = open_file("fault", kPage);
  ASSERT_TRUE(write_all(*queue_, pump_, file, 0, memory.span()).ok());
  AlignedMemory forbidden(kPage, PROT_NONE);
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    const Outcome fault = run(*queue_, pump_, {kind, file, 0, forbidden.span()});
    EXPECT_EQ(fault.status.error_number(), EFAULT) << fault.status.to_string();
    EXPECT_EQ(fault.status.code(), Code::kIoError);
    EXPECT_TRUE(contains(fault.status, folder_.file("fault")));
  }
}

// Goal: more files than the kernel's table holds. Method: open a hundred, move bytes through the
// last and the first.
TEST_P(AioQueueTest, ManyFiles) {
  AlignedMemory from(kPage);
  AlignedMemory to(kPage);
  std::mt19937_64 random(1);
  std::vector<FileId> files;
  for (int i = 0; i < 100; ++i) files.push_back(open_file("many" + std::to_string(i), kPage));
  for (const FileId file : {files.front(), files[63], files[64], files.back()}) {
    fill_random(from.span(), random);
    ASSERT_TRUE(write_all(*queue_, pump_, file, 0, from.span()).ok());
    ASSERT_TRUE(read_all(*queue_, pump_, file, 0, to.span()).ok());
    EXPECT_TRUE(same_bytes(from.span(), to.span()));
  }
}

// Goal: destroying a queue in use is our mistake and says so. Method: in a process that dies of it.
TEST_P(AioQueueTest, DestructionInUseIsAMistake) {
  queue_.reset();  // its threads, if it has any, are no company for a fork
  const auto destroy = [this] {
    AlignedMemory memory(kPage);
    Completion completion;
    OpenedQueue other = GetParam().open();
    const auto file = other.queue->open(folder_.file("in_use"), kPage);
    other.queue->submit({Kind::kWrite, *file, 0, memory.span()}, completion);
    other.queue.reset();
  };
  EXPECT_DEATH(destroy(), "check failed at .*aio/.*_queue.cc");
}

// Goal: a forked child may destroy its copy of a queue in use and disturbs nobody. Method: fork
// with writes in flight, destroy queue and completions in the child, then finish and read back in
// the parent.
TEST_P(AioQueueTest, ForkedChildDestroysOnlyItsCopy) {
  const uint32_t depth = queue_->depth();
  const FileId file = open_file("fork", depth * kPage);
  AlignedMemory from(depth * kPage);
  AlignedMemory to(depth * kPage);
  std::mt19937_64 random(2);
  fill_random(from.span(), random);
  auto completions = std::make_unique<std::deque<Completion>>(depth);
  for (uint32_t i = 0; i < depth; ++i) {
    if (i == depth / 2) queue_->poll();
    queue_->submit({Kind::kWrite, file, i * kPage, from.part(i * kPage, kPage)}, (*completions)[i]);
  }
  EXPECT_EQ(run_in_child([&] {
              queue_.reset();
              completions.reset();
              return std::string();
            }),
            "");
  drain(*queue_, pump_);
  for (const Completion& completion : *completions) {
    ASSERT_TRUE(completion.status().ok()) << completion.status().to_string();
  }
  ASSERT_TRUE(read_all(*queue_, pump_, file, 0, to.span()).ok());
  EXPECT_TRUE(same_bytes(from.span(), to.span()));
}

// Goal: wait() ends when there is something to deliver, not before and not only at its limit.
// Method: never yield or sleep: every wait() without a limit is followed by a poll() that delivers.
TEST_P(AioQueueTest, WaitEndsWithSomethingToDeliver) {
  const uint32_t depth = queue_->depth();
  const FileId file = open_file("wait", depth * kPage);
  AlignedMemory memory(depth * kPage);
  std::deque<Completion> completions(depth);
  for (int round = 0; round < 20; ++round) {
    for (uint32_t i = 0; i < depth; ++i) {
      queue_->submit({Kind::kWrite, file, i * kPage, memory.part(i * kPage, kPage)},
                     completions[i]);
    }
    uint32_t delivered = 0;
    while (delivered < depth) {
      file_queue().wait(~uint64_t{0});
      file_queue().wait(~uint64_t{0});  // it is still to be delivered: no second wait
      const uint32_t count = queue_->poll();
      ASSERT_GT(count, 0u);
      delivered += count;
    }
  }
}

// Goal: wait() does not wait for nothing. Method: no limit, nothing in flight, before and after a
// request; then with all cancelled.
TEST_P(AioQueueTest, WaitReturnsWithNothingInFlight) {
  file_queue().wait(~uint64_t{0});
  const FileId file = open_file("nothing", kPage);
  AlignedMemory memory(kPage);
  run(*queue_, pump_, {Kind::kWrite, file, 0, memory.span()});
  file_queue().wait(~uint64_t{0});
  Completion completion;
  queue_->submit({Kind::kWrite, file, 0, memory.span()}, completion);
  queue_->cancel();
  file_queue().wait(~uint64_t{0});
  EXPECT_EQ(queue_->poll(), 1u);
}

// Goal: an id that is given out again means the new file, in the kernel's tables too. Method: adopt
// a file, write, release, adopt another, write other bytes; read both through descriptors of ours.
TEST_P(AioQueueTest, ReleasedIdsAreReused) {
  AlignedMemory memory(kPage);
  AlignedMemory seen(kPage);
  const FileId kept = open_file("kept", kPage);
  FileId last = kept;
  for (int round = 0; round < 3; ++round) {
    File file = unnamed(kPage);
    const int ours = dup(file.fd());
    const FileId id = file_queue().adopt(std::move(file));
    EXPECT_NE(id, kept);
    if (round > 0) {
      EXPECT_EQ(id, last);
    }
    std::mt19937_64 random(round);
    fill_random(memory.span(), random);
    ASSERT_TRUE(write_all(*queue_, pump_, id, 0, memory.span()).ok());
    file_queue().release(id);
    const Outcome gone = run(*queue_, pump_, {Kind::kRead, id, 0, seen.span()});
    EXPECT_EQ(gone.status.error_number(), EBADF) << gone.status.to_string();
    ASSERT_EQ(pread(ours, seen.span().data(), kPage, 0), static_cast<ssize_t>(kPage));
    EXPECT_TRUE(same_bytes(memory.span(), seen.span())) << round;
    ::close(ours);
    last = id;
  }
}

// Goal: a released file is closed, in the kernel's tables too. Method: a write lease is given only
// on a file that nobody else has open.
TEST_P(AioQueueTest, ReleaseClosesTheFile) {
  const FileId file = open_file("closed", kPage);
  AlignedMemory memory(kPage);
  ASSERT_TRUE(write_all(*queue_, pump_, file, 0, memory.span()).ok());
  const int fd = ::open(folder_.file("closed").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0 || errno != EAGAIN) {
    ::close(fd);
    GTEST_SKIP() << "no leases on this file system";
  }
  file_queue().release(file);
  int leased = -1;
  // The kernel may drop its reference a little later.
  for (int i = 0; i < 100'000 && leased != 0; ++i) {
    leased = fcntl(fd, F_SETLEASE, F_WRLCK);
    if (leased != 0) pump_();
  }
  EXPECT_EQ(leased, 0);
  ::close(fd);
}

// Goal: releasing a file in use, or twice, is our mistake. Method: in a process that dies of it.
TEST_P(AioQueueTest, ReleaseInUseIsAMistake) {
  queue_.reset();
  const auto release = [this](bool in_use) {
    AlignedMemory memory(kPage);
    Completion completion;
    OpenedQueue other = GetParam().open();
    auto& queue = dynamic_cast<FileQueue&>(*other.queue);
    const FileId file = *queue.open(folder_.file("in_use"), kPage);
    if (in_use) queue.submit({Kind::kWrite, file, 0, memory.span()}, completion);
    queue.release(file);
    queue.release(file);
  };
  EXPECT_DEATH(release(true), "check failed at .*file_queue.cc");
  std::filesystem::remove(folder_.file("in_use"));
  EXPECT_DEATH(release(false), "check failed at .*file_queue.cc");
}

// Goal: cancels take no completion's place. Method: everything the queue takes is cancelled, again
// and again, and with a second cancel() on top; nothing is lost.
TEST_P(AioQueueTest, CancelsNeverOverrunTheQueue) {
  const uint32_t depth = queue_->depth();
  const FileId file = open_file("overrun", depth * kPage);
  AlignedMemory memory(depth * kPage);
  std::deque<Completion> completions(depth);
  for (int round = 0; round < 50; ++round) {
    for (uint32_t i = 0; i < depth; ++i) {
      queue_->submit({Kind::kRead, file, i * kPage, memory.part(i * kPage, kPage)}, completions[i]);
    }
    queue_->cancel();
    queue_->cancel();
    drain(*queue_, pump_);
    for (const Completion& completion : completions) ASSERT_TRUE(completion.done());
  }
}

}  // namespace
}  // namespace zoffload::test
