// What happens where a system call is forbidden or missing, or locked memory limited: containers
// and older kernels, imitated in a forked child with a seccomp filter or a resource limit.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "aio/io_uring_queue.h"
#include "aio/open_queue.h"
#include "aio/probe.h"
#include "tests/conformance/io_queue_helpers.h"
#include "tests/unit/seccomp_filter.h"

namespace zoffload::test {
namespace {

constexpr uint64_t kPage = kPageBytes;

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

// Opens kAuto's queue and moves bytes. Returns "" or what is wrong: another queue than `name`, or
// `words` are not in its reason.
std::string falls_back(bool direct_expected, const std::string& name, const std::string& words,
                       const std::string& path) {
  auto chosen = open_queue(IoEngine::kAuto, {.direct_expected = direct_expected});
  if (!chosen.ok()) return chosen.status().to_string();
  if (chosen->queue->name() != name) return std::string("it is ") + chosen->queue->name();
  if (chosen->why.find(words) == std::string::npos) return "why: " + chosen->why;
  const AlignedMemory memory(16 * kPage);
  return moves_bytes(*chosen->queue, path, memory.span());
}

// Goal: where io_uring is denied, kAuto moves bytes with threads, or with libaio where files are
// direct, and says why; kUring is an error, and the probe names the state. Method: a seccomp filter
// in a forked child.
TEST_P(IoUringDenied, FallsBackAndSaysWhy) {
  const UringProbe before = probe_uring();
  if (before.state != UringState::kReady) GTEST_SKIP() << before.why;
  const Denial& denial = GetParam();
  const TempFolder folder;
  const bool direct = probe_path(folder.path()).direct;
  const std::string complaint = run_in_child([&]() -> std::string {
    if (!deny(denial.call, denial.error_number)) return "no seccomp filter could be installed";
    const std::string threads = falls_back(false, "threads", denial.words, folder.file("threads"));
    if (!threads.empty()) return threads;
    if (direct) {
      const std::string libaio = falls_back(true, "libaio", denial.words, folder.file("libaio"));
      if (!libaio.empty()) return libaio;
    }
    const auto demanded = open_queue(IoEngine::kUring, {});
    if (demanded.ok() || demanded.status().code() != Code::kUnsupported)
      return "kUring is no error";
    return probe_uring().state == denial.state ? "" : "state: " + probe_uring().why;
  });
  EXPECT_EQ(complaint, "");
}

// Goal: where libaio is denied too, threads move the bytes, both reasons are said, and kLibaio is
// an error. Method: the same, with a second filter.
TEST_P(IoUringDenied, ThreadsAreLeftWithoutLibaio) {
  const Denial& denial = GetParam();
  const TempFolder folder;
  const std::string complaint = run_in_child([&]() -> std::string {
    if (!deny(denial.call, denial.error_number)) return "no seccomp filter could be installed";
    if (!deny(__NR_io_setup, EPERM)) return "no second filter";
    const auto demanded = open_queue(IoEngine::kLibaio, {});
    if (demanded.ok() || demanded.status().code() != Code::kUnsupported)
      return "kLibaio is no error";
    return falls_back(true, "threads", "libaio is denied (EPERM)", folder.file("both"));
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
    if (queue.value()->memory_registered()) return "the limit had no effect";
    return moves_bytes(*queue.value(), folder.file("unregistered"), memory.span());
  });
  EXPECT_EQ(complaint, "");
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
  if (!queue.value()->memory_registered()) GTEST_SKIP() << "the limit on locked memory is too low";
  for (const uint64_t at : {kSlab - 32 * kPage, kSlab - 3 * kPage, kSlab, kSlab + 16 * kPage}) {
    const std::string path = folder.file(std::to_string(at));
    EXPECT_EQ(moves_bytes(*queue.value(), path, arena.part(at, 16 * kPage)), "") << at;
  }
}

// Goal: memory that is unregistered may be unmapped, and what is mapped at its address next is seen
// by every request. Method: register a mapping, move bytes, unregister it, map it anew in place,
// and move other bytes.
TEST(IoUringArena, UnregisteredMemoryMayBeMappedAnew) {
  const UringProbe probe = probe_uring();
  if (probe.state != UringState::kReady) GTEST_SKIP() << probe.why;
  constexpr uint64_t kBytes = 64 * kPage;
  const TempFolder folder;
  void* const address =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(address, MAP_FAILED);
  const HostSpan memory(static_cast<std::byte*>(address), kBytes);
  auto queue = IoUringQueue::create({});
  ASSERT_TRUE(queue.ok()) << queue.status().to_string();
  for (int round = 0; round < 3; ++round) {
    const auto registered = queue.value()->register_arena(memory);
    ASSERT_TRUE(registered.ok()) << registered.status().to_string();
    if (!registered->empty()) GTEST_SKIP() << *registered;
    const std::string name = std::to_string(round);
    EXPECT_EQ(moves_bytes(*queue.value(), folder.file("registered" + name), memory), "");
    queue.value()->unregister_arena(memory);
    EXPECT_FALSE(queue.value()->memory_registered());
    ASSERT_EQ(mmap(address, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
              address);
    EXPECT_EQ(moves_bytes(*queue.value(), folder.file("anew" + name), memory), "");
  }
  munmap(address, kBytes);
}

// Goal: memory that the kernel's table has no more room for is said and works. Method: register
// piece by piece until that happens, move bytes in the first and the last piece, free one place,
// and register the last piece once more.
TEST(IoUringArena, FullTableIsSaid) {
  const UringProbe probe = probe_uring();
  if (probe.state != UringState::kReady) GTEST_SKIP() << probe.why;
  constexpr uint64_t kPieces = 4096;
  constexpr uint64_t kPiece = 2 * kPage;
  const TempFolder folder;
  const AlignedMemory memory(kPieces * kPiece);
  auto queue = IoUringQueue::create({});
  ASSERT_TRUE(queue.ok()) << queue.status().to_string();
  std::string said;
  uint64_t count = 0;
  while (said.empty()) {
    ASSERT_LT(count, kPieces);
    const auto registered = queue.value()->register_arena(memory.part(count++ * kPiece, kPiece));
    ASSERT_TRUE(registered.ok()) << registered.status().to_string();
    said = *registered;
  }
  if (said.find("ulimit -l") != std::string::npos) GTEST_SKIP() << said;
  EXPECT_NE(said.find("full"), std::string::npos) << said;
  const HostSpan first = memory.part(0, kPiece);
  const HostSpan last = memory.part((count - 1) * kPiece, kPiece);
  EXPECT_EQ(moves_bytes(*queue.value(), folder.file("first"), first), "");
  EXPECT_EQ(moves_bytes(*queue.value(), folder.file("last"), last), "");
  queue.value()->unregister_arena(memory.part(kPiece, kPiece));
  const auto registered = queue.value()->register_arena(last);
  ASSERT_TRUE(registered.ok()) << registered.status().to_string();
  EXPECT_EQ(*registered, "");
}

}  // namespace
}  // namespace zoffload::test
