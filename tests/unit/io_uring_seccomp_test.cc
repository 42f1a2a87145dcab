// What happens where a system call is forbidden or missing, or locked memory limited: containers
// and older kernels, imitated in a forked child with a seccomp filter or a resource limit.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <thread>

#include "aio/io_uring_queue.h"
#include "aio/open_queue.h"
#include "aio/probe.h"
#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::test {
namespace {

constexpr uint64_t kPage = kPageBytes;

// Makes one system call fail with `error_number` in this process, as a container's profile does.
bool deny(unsigned call, unsigned error_number) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error_number),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {static_cast<unsigned short>(std::size(program)), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Writes and reads a few pages through the queue. Returns "" or what went wrong.
std::string moves_bytes(IoQueue& queue, const std::string& path, HostSpan memory) {
  const uint64_t half = memory.size() / 2;
  std::mt19937_64 random(1);
  fill_random(memory.first(half), random);
  const auto file = queue.open(path, half);
  if (!file.ok()) return file.status().to_string();
  Status status = write_all(queue, std::this_thread::yield, *file, 0, memory.first(half));
  if (status.ok()) status = read_all(queue, std::this_thread::yield, *file, 0, memory.last(half));
  if (!status.ok()) return status.to_string();
  return same_bytes(memory.first(half), memory.last(half)) ? "" : "other bytes came back";
}

struct Denial {
  const char* name;
  unsigned call;
  unsigned error_number;
  UringState state;
  const char* words;
};

const Denial kDenials[] = {
    {"setup_eperm", __NR_io_uring_setup, EPERM, UringState::kDenied, "denied by seccomp (EPERM)"},
    {"setup_enosys", __NR_io_uring_setup, ENOSYS, UringState::kAbsent, "missing from this kernel"},
    {"enter_eperm", __NR_io_uring_enter, EPERM, UringState::kDenied, "denied by seccomp (EPERM)"},
};

class IoUringDenied : public testing::TestWithParam<Denial> {};

// Goal: where io_uring is denied, kAuto moves bytes with threads and says why, kUring is an error,
// and the probe names the state. Method: a seccomp filter in a forked child.
TEST_P(IoUringDenied, FallsBackAndSaysWhy) {
  const UringProbe before = probe_uring();
  if (before.state != UringState::kReady) GTEST_SKIP() << before.why;
  const Denial& denial = GetParam();
  const TempFolder folder;
  const std::string complaint = run_in_child([&]() -> std::string {
    if (!deny(denial.call, denial.error_number)) return "no seccomp filter could be installed";
    auto chosen = open_queue(IoEngine::kAuto, {});
    if (!chosen.ok()) return chosen.status().to_string();
    if (chosen->queue->name() != std::string("threads")) return "not the threads";
    if (chosen->why.find(denial.words) == std::string::npos) return "why: " + chosen->why;
    if (chosen->why.find("4 pread/pwrite threads") == std::string::npos)
      return "why: " + chosen->why;
    const auto demanded = open_queue(IoEngine::kUring, {});
    if (demanded.ok() || demanded.status().code() != Code::kUnsupported)
      return "kUring is no error";
    if (probe_uring().state != denial.state) return "state: " + probe_uring().why;
    const AlignedMemory memory(16 * kPage);
    return moves_bytes(*chosen->queue, folder.file("fallback"), memory.span());
  });
  EXPECT_EQ(complaint, "");
}

INSTANTIATE_TEST_SUITE_P(Denials, IoUringDenied, testing::ValuesIn(kDenials),
                         [](const auto& info) { return std::string(info.param.name); });

struct Missing {
  const char* name;
  bool statx;      // direct I/O must be tried out
  bool fallocate;  // space must be reserved by writing
};

const Missing kMissing[] = {
    {"statx", true, false}, {"fallocate", false, true}, {"both", true, true}};

class OlderKernel : public testing::TestWithParam<Missing> {};

// Goal: without statx() or fallocate() a file is as direct and as reserved as with them. Method: a
// seccomp filter in a forked child.
TEST_P(OlderKernel, FilesAreTheSame) {
  constexpr uint64_t kBytes = 64 * kPage;
  const TempFolder folder;
  const IoProbe before = probe_path(folder.path());
  const std::string complaint = run_in_child([&]() -> std::string {
    const Missing& missing = GetParam();
    if (missing.statx && !deny(__NR_statx, ENOSYS)) return "no filter";
    if (missing.fallocate && !deny(__NR_fallocate, EOPNOTSUPP)) return "no filter";
    const IoProbe probe = probe_path(folder.path());
    if (!probe.status.ok()) return probe.status.to_string();
    if (probe.direct != before.direct) return "direct: " + probe.why_not_direct;
    auto chosen = open_queue(IoEngine::kThreads, {});
    const AlignedMemory memory(2 * kBytes);
    return moves_bytes(*chosen->queue, folder.file("data"), memory.span());
  });
  EXPECT_EQ(complaint, "");
  struct stat facts = {};
  ASSERT_EQ(stat(folder.file("data").c_str(), &facts), 0);
  EXPECT_EQ(static_cast<uint64_t>(facts.st_size), kBytes);
  EXPECT_GE(static_cast<uint64_t>(facts.st_blocks) * 512, kBytes);
}

INSTANTIATE_TEST_SUITE_P(Calls, OlderKernel, testing::ValuesIn(kMissing),
                         [](const auto& info) { return std::string(info.param.name); });

// Goal: a disk that fills up while the space is being reserved leaves no file. Method: fallocate()
// says ENOSPC in a forked child, although enough is free.
TEST(FullDisk, OpenLeavesNoFile) {
  const TempFolder folder;
  const std::string complaint = run_in_child([&]() -> std::string {
    if (!deny(__NR_fallocate, ENOSPC)) return "no seccomp filter";
    auto chosen = open_queue(IoEngine::kThreads, {});
    const auto file = chosen->queue->open(folder.file("data"), kPage);
    return file.status().code() == Code::kOutOfSpace ? "" : file.status().to_string();
  });
  EXPECT_EQ(complaint, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Goal: a low limit on locked memory costs registration, not the queue. Method: in a child, 64 KiB
// of locked memory and, where the test runs as root, an ordinary user, since root is exempt;
// register 1 MiB and move bytes.
TEST(IoUringMemlock, RegistrationFailsSoftly) {
  const UringProbe probe = probe_uring();
  if (probe.state != UringState::kReady) GTEST_SKIP() << probe.why;
  constexpr uid_t kNobody = 65534;
  const TempFolder folder(std::filesystem::temp_directory_path());  // another user gets there
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  const std::string complaint = run_in_child([&]() -> std::string {
    const rlimit limit = {64 << 10, 64 << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "no limit";
    if (getuid() == 0 && setuid(kNobody) != 0) return "no other user";
    auto queue = IoUringQueue::create({});
    if (!queue.ok()) return queue.status().to_string();
    const AlignedMemory memory(1 << 20);
    const auto registered = queue.value()->register_arena(memory.span());
    if (!registered.ok()) return registered.status().to_string();
    if (registered->find("ulimit -l") == std::string::npos) return "it is not said: " + *registered;
    if (queue.value()->arena_registered()) return "the limit had no effect";
    return moves_bytes(*queue.value(), folder.file("unregistered"), memory.span());
  });
  EXPECT_EQ(complaint, "");
}

// Goal: what was cancelled before the kernel saw it never reaches the file. Method: submit, cancel,
// poll, read.
TEST(IoUringCancel, AnUnsentRequestIsNeverSent) {
  const UringProbe probe = probe_uring();
  if (probe.state != UringState::kReady) GTEST_SKIP() << probe.why;
  const TempFolder folder;
  const AlignedMemory memory(kPage);
  const AlignedMemory zeros(kPage);
  auto queue = IoUringQueue::create({});
  ASSERT_TRUE(queue.ok()) << queue.status().to_string();
  const auto file = queue.value()->open(folder.file("unsent"), kPage);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  std::mt19937_64 random(1);
  fill_random(memory.span(), random);
  Completion completion;
  queue.value()->submit({IoRequest::Kind::kWrite, *file, 0, memory.span()}, completion);
  queue.value()->cancel();
  EXPECT_TRUE(completion.pending());
  EXPECT_EQ(queue.value()->poll(), 1u);
  EXPECT_EQ(completion.status().code(), Code::kTimeout);
  ASSERT_TRUE(read_all(*queue.value(), std::this_thread::yield, *file, 0, memory.span()).ok());
  EXPECT_TRUE(same_bytes(memory.span(), zeros.span()));
}

// Goal: an arena larger than the kernel takes in one piece is registered in several, and a request
// across two of them works. Method: an arena of 512 MiB and a little, transfers before, across and
// after the border.
TEST(IoUringArena, LargeArenaIsRegisteredInSlabs) {
  const UringProbe probe = probe_uring();
  if (probe.state != UringState::kReady) GTEST_SKIP() << probe.why;
  constexpr uint64_t kSlab = 512ull << 20;
  const TempFolder folder;
  const AlignedMemory arena(kSlab + (1 << 20));
  auto queue = IoUringQueue::create({});
  ASSERT_TRUE(queue.ok()) << queue.status().to_string();
  ASSERT_TRUE(queue.value()->register_arena(arena.span()).ok());
  if (!queue.value()->arena_registered()) GTEST_SKIP() << "the limit on locked memory is too low";
  for (const uint64_t at : {kSlab - 32 * kPage, kSlab - 3 * kPage, kSlab, kSlab + 16 * kPage}) {
    const std::string path = folder.file(std::to_string(at));
    EXPECT_EQ(moves_bytes(*queue.value(), path, arena.part(at, 16 * kPage)), "") << at;
  }
}

}  // namespace
}  // namespace zoffload::test
