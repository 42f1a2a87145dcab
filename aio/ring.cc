#include "aio/ring.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace zoffload {
namespace {

// From the kernel's io_uring.h; liburing before 2.3 does not carry all of them.
constexpr unsigned kCqSize = 1u << 3;
constexpr unsigned kClamp = 1u << 4;
constexpr unsigned kSubmitAll = 1u << 7;
constexpr unsigned kCoopTaskrun = 1u << 8;
constexpr unsigned kTaskrunFlag = 1u << 9;
constexpr unsigned kSingleIssuer = 1u << 12;
constexpr unsigned kDeferTaskrun = 1u << 13;

struct Rung {
  RingRung rung;
  unsigned flags;
};
constexpr Rung kLadder[] = {
    {RingRung::kDeferTaskrun, kSingleIssuer | kDeferTaskrun | kSubmitAll | kClamp | kCqSize},
    {RingRung::kCoopTaskrun, kCoopTaskrun | kTaskrunFlag | kSubmitAll | kClamp | kCqSize},
    {RingRung::kPlain, 0},
};

constexpr uint64_t kFirstRequest = 1;
constexpr uint64_t kSecondNs = 1'000'000'000;

// The kernel's struct __kernel_timespec and struct io_uring_getevents_arg.
struct Timespec {
  int64_t seconds;
  int64_t nanoseconds;
};
struct EnterArgument {
  uint64_t signal_mask;
  uint32_t signal_mask_bytes;
  uint32_t padding;
  uint64_t timeout;
};
static_assert(sizeof(EnterArgument) == 24);

bool seccomp_filters() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Seccomp:", 0) == 0) return line.find('2') != std::string::npos;
  }
  return false;
}

std::string explain(int error_number) {
  switch (error_number) {
    case EPERM: {
      const int disabled = io_uring_disabled_setting();
      if (disabled != 0) {
        return "io_uring is disabled by kernel.io_uring_disabled=" + std::to_string(disabled) +
               " (EPERM); set it to 0 with sysctl";
      }
      if (seccomp_filters()) {
        return "io_uring is denied by seccomp (EPERM); run the container with a seccomp profile "
               "that allows io_uring_setup, io_uring_enter and io_uring_register";
      }
      return "io_uring is denied (EPERM); a security module may forbid it";
    }
    case ENOSYS: return "io_uring is missing from this kernel (ENOSYS); Linux 5.6 or later has it";
    case ENOMEM: return "io_uring got no memory (ENOMEM); raise the limit `ulimit -l`";
    case EMFILE: return "io_uring got no descriptor (EMFILE); raise the limit `ulimit -n`";
    case EOPNOTSUPP: return "io_uring of this kernel cannot read and write; Linux 5.6 or later can";
    default: return std::string("io_uring failed: ") + std::strerror(error_number);
  }
}

}  // namespace

int io_uring_disabled_setting() {
  int value = 0;
  std::ifstream("/proc/sys/kernel/io_uring_disabled") >> value;
  return value;
}

Result<std::unique_ptr<Ring>> Ring::create(uint32_t entries, RingRung first) {
  std::unique_ptr<Ring> ring(new Ring);
  int error = ring->set_up(entries, first);
  if (error == 0) error = ring->answer_first_request();
  if (error != 0) return Status(Code::kUnsupported, explain(-error), -error);
  return ring;
}

Ring::~Ring() {
  if (live_) io_uring_queue_exit(&ring_);
}

int Ring::set_up(uint32_t entries, RingRung first) {
  int error = -EINVAL;
  for (const Rung& rung : kLadder) {
    if (rung.rung < first) continue;
    io_uring_params params = {};
    params.flags = rung.flags;
    if ((rung.flags & kCqSize) != 0) params.cq_entries = 4 * entries;
    error = io_uring_queue_init_params(entries, &ring_, &params);
    rung_ = rung.rung;
    if (error != -EINVAL) break;  // EINVAL: a flag that this kernel does not know
  }
  if (error != 0) return error;
  live_ = true;
  // IORING_OP_READ and this feature came with the same kernel.
  return (ring_.features & IORING_FEAT_RW_CUR_POS) != 0 ? 0 : -EOPNOTSUPP;
}

// A filter may allow io_uring_setup and deny io_uring_enter: only an answer proves the ring.
int Ring::answer_first_request() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  io_uring_prep_nop(sqe);
  sqe->user_data = kFirstRequest;
  int sent;
  do {
    sent = io_uring_submit_and_wait(&ring_, 1);
  } while (sent == -EINTR || sent == -EAGAIN);
  if (sent < 0) return sent;
  io_uring_cqe* cqe = nullptr;
  const int error = io_uring_wait_cqe(&ring_, &cqe);
  if (error != 0) return error;
  io_uring_cqe_seen(&ring_, cqe);
  return 0;
}

const char* Ring::features() const {
  switch (rung_) {
    case RingRung::kDeferTaskrun: return "single_issuer, defer_taskrun, submit_all";
    case RingRung::kCoopTaskrun: return "coop_taskrun, taskrun_flag, submit_all";
    case RingRung::kPlain: return "none";
  }
  return "none";
}

// The system call itself: liburing before 2.3 has no io_uring_get_events(), and its wait with a
// timeout may spend a submission.
int Ring::collect(uint64_t ns_max) {
  long done = 0;
  if (ns_max == 0) {
    done = syscall(__NR_io_uring_enter, ring_.ring_fd, 0, 0, IORING_ENTER_GETEVENTS, nullptr, 0);
  } else if ((ring_.features & IORING_FEAT_EXT_ARG) != 0) {
    const Timespec timeout = {static_cast<int64_t>(ns_max / kSecondNs),
                              static_cast<int64_t>(ns_max % kSecondNs)};
    EnterArgument argument = {};
    argument.timeout = reinterpret_cast<uint64_t>(&timeout);
    done = syscall(__NR_io_uring_enter, ring_.ring_fd, 0, 1,
                   IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument);
  } else {  // before Linux 5.11; such a kernel defers nothing
    const timespec timeout = {static_cast<time_t>(ns_max / kSecondNs),
                              static_cast<long>(ns_max % kSecondNs)};
    pollfd ring = {ring_.ring_fd, POLLIN, 0};
    done = ppoll(&ring, 1, &timeout, nullptr);
  }
  return done < 0 ? -errno : 0;
}

}  // namespace zoffload
