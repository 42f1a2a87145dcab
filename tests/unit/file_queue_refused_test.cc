// A kernel that says "not now": it is imitated in a forked child by a filter that traps the calls
// which start requests. The handler refuses as often as it is told to and then lets them through.
#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <deque>

#include "aio/open_queue.h"
#include "aio/probe.h"
#include "tests/conformance/io_queue_helpers.h"
#include "tests/unit/seccomp_filter.h"

namespace zoffload::test {
namespace {

#if defined(__x86_64__)

constexpr uint64_t kPage = kPageBytes;
constexpr uint32_t kDepth = 8;
constexpr uint64_t kWritesBytes = (kDepth - 1) * kPage;
// The argument of a call that the handler makes itself. The kernel does not look at it.
constexpr long kLetThrough = 0x5a5a;

volatile sig_atomic_t refusals_left = 0;
volatile sig_atomic_t refusals = 0;
volatile sig_atomic_t refusal_errno = EAGAIN;

void on_trap(int, siginfo_t*, void* context) {
  greg_t* const r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (refusals_left > 0) {
    refusals_left = refusals_left - 1;
    refusals = refusals + 1;
    r[REG_RAX] = -refusal_errno;
    return;
  }
  const int before = errno;
  // io_uring_enter() ignores its last argument without a signal mask; io_submit() has three.
  const long result =
      syscall(r[REG_RAX], r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], 0L, kLetThrough);
  r[REG_RAX] = result < 0 ? -errno : result;
  errno = before;
}

bool trap(unsigned call) {
  struct sigaction action = {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  const auto argument = [](unsigned i) {
    return static_cast<uint32_t>(offsetof(seccomp_data, args) + i * 8);
  };
  // io_uring_enter() that starts nothing only collects, and passes.
  const uint32_t passes = call == __NR_io_uring_enter ? 0 : ~uint32_t{0};
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(1)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, passes, 3, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(5)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(kLetThrough), 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return install_filter(program, std::size(program));
}

struct Refusing {
  const char* name;
  IoEngine engine;
  unsigned call;
  int error_number;
};

const Refusing kRefusing[] = {
    {"uring_eagain", IoEngine::kUring, __NR_io_uring_enter, EAGAIN},
    {"uring_ebusy", IoEngine::kUring, __NR_io_uring_enter, EBUSY},
    {"libaio_eagain", IoEngine::kLibaio, __NR_io_submit, EAGAIN},
};

class RefusedTest : public testing::TestWithParam<Refusing> {
 protected:
  using Body = std::function<std::string(FileQueue&, FileId)>;

  // In a child whose kernel refuses, once a queue has a file of zeros.
  std::string in_child(const Body& body) {
    return run_in_child([&]() -> std::string {
      const Refusing& row = GetParam();
      refusal_errno = row.error_number;
      if (!trap(row.call)) return "no filter";
      auto chosen = open_queue(row.engine, {.depth = kDepth});
      if (!chosen.ok()) return chosen.status().to_string();
      const auto file = chosen->queue->open(folder_.file("data"), kDepth * kPage);
      if (!file.ok()) return file.status().to_string();
      return body(*chosen->queue, *file);
    });
  }

  // Not empty: this machine cannot run the row.
  std::string why_skipped() {
    if (GetParam().engine == IoEngine::kUring) return probe_uring().why;
    const IoProbe probe = probe_path(folder_.path());
    return probe.direct ? "" : "no direct files here: " + probe.why_not_direct;
  }

  TempFolder folder_;
};

// Goal: requests that are refused stay in flight, keep their bytes and are started later, each
// once. Method: refuse the first ones for a while; poll, submit more, wait; read all back.
TEST_P(RefusedTest, IsStartedLater) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::string complaint = in_child([&](FileQueue& queue, FileId file) -> std::string {
    const AlignedMemory from(kDepth * kPage);
    const AlignedMemory to(kDepth * kPage);
    std::mt19937_64 random(1);
    fill_random(from.span(), random);
    std::deque<Completion> completions(kDepth);
    refusals_left = 5;
    for (uint32_t i = 0; i < kDepth; ++i) {
      const HostSpan page = from.part(i * kPage, kPage);
      queue.submit({IoRequest::Kind::kWrite, file, i * kPage, page}, completions[i]);
      if (i == 1 && queue.poll() != 0) return "delivered what was refused";
      if (i == 1) queue.wait(~uint64_t{0});  // nothing was started: it must not wait for it
    }
    while (queue.in_flight() > 0) {
      queue.wait(~uint64_t{0});
      queue.poll();
    }
    if (refusals != 5) return std::to_string(refusals) + " refusals";
    for (const Completion& completion : completions) {
      if (!completion.status().ok()) return completion.status().to_string();
      if (completion.bytes() != kPage) return "short";
    }
    const Status read = read_all(
        queue, [] {}, file, 0, to.span());
    if (!read.ok()) return read.to_string();
    return same_bytes(from.span(), to.span()) ? "" : "other bytes";
  });
  EXPECT_EQ(complaint, "");
}

// Goal: what was cancelled before it was started never reaches the file. Method: refuse all,
// cancel, poll; then let everything through and read.
TEST_P(RefusedTest, IsNeverStartedOnceCancelled) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::string complaint = in_child([&](FileQueue& queue, FileId file) -> std::string {
    const AlignedMemory from(kDepth * kPage);
    const AlignedMemory zeros(kWritesBytes);
    const AlignedMemory to(kWritesBytes);
    std::mt19937_64 random(1);
    fill_random(from.span(), random);
    std::deque<Completion> completions(kDepth);
    refusals_left = 1000;
    for (uint32_t i = 0; i < kDepth - 1; ++i) {
      const HostSpan page = from.part(i * kPage, kPage);
      queue.submit({IoRequest::Kind::kWrite, file, i * kPage, page}, completions[i]);
    }
    queue.cancel();
    for (const Completion& completion : completions) {
      if (completion.done()) return "delivered outside poll()";
    }
    if (queue.poll() != kDepth - 1) return "not all came back at once";
    for (uint32_t i = 0; i < kDepth - 1; ++i) {
      if (completions[i].status().code() != Code::kTimeout) return "it is no timeout";
    }
    refusals_left = 0;
    // The queue still works, at another place of the file.
    const HostSpan last = from.part(kWritesBytes, kPage);
    const Status written = write_all(
        queue, [] {}, file, kWritesBytes, last);
    if (!written.ok()) return written.to_string();
    const Status read = read_all(
        queue, [] {}, file, 0, to.span());
    if (!read.ok()) return read.to_string();
    return same_bytes(zeros.span(), to.span()) ? "" : "it was written";
  });
  EXPECT_EQ(complaint, "");
}

INSTANTIATE_TEST_SUITE_P(Kernel, RefusedTest, testing::ValuesIn(kRefusing),
                         [](const auto& info) { return std::string(info.param.name); });

#else
TEST(Refused, NeedsX86) { GTEST_SKIP() << "the trap is written for x86-64"; }
#endif

}  // namespace
}  // namespace zoffload::test
