#include "aio/io_uring_queue.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "aio/ring.h"
#include "core/base/format.h"
#include "core/base/types.h"

namespace zoffload {
namespace {

// The kernel takes at most 1 GiB in one piece. A request that crosses two goes unregistered.
constexpr uint64_t kSlabBytes = 512ull << 20;

// The most that the kernel moves in one call, and more than 32 bits hold: a short transfer.
constexpr uint64_t kTransferBytesMax = 0x7ffff000;

constexpr uint32_t kFixedFiles =
    64;  // later files work too, at the price of a lookup for each request

constexpr uint64_t kCancelTag =
    ~uint64_t{0};  // user_data of cancel requests; no request has this index

// Errors of io_uring_enter() that say "later"; the others are mistakes of ours.
bool try_again_later(int error) {
  return error == -EAGAIN || error == -EBUSY || error == -EINTR || error == -ENOMEM;
}

}  // namespace

Result<std::unique_ptr<IoUringQueue>> IoUringQueue::create(IoQueueOptions options) {
  ZO_CHECK(options.depth > 0);
  ZO_ASSIGN_OR_RETURN(auto ring, Ring::create(options.depth, options.first_rung));
  options.depth = std::min(options.depth, io_uring_sq_space_left(ring->get()));
  return std::unique_ptr<IoUringQueue>(new IoUringQueue(std::move(ring), options));
}

IoUringQueue::IoUringQueue(std::unique_ptr<Ring> ring, const IoQueueOptions& options)
    : owner_(getpid()),
      ring_(std::move(ring)),
      files_(options.want_direct),
      requests_(options.depth),
      progress_(options.depth) {
  const std::vector<int> empty(kFixedFiles, -1);
  file_table_ = io_uring_register_files(ring_->get(), empty.data(), kFixedFiles) == 0;
}

IoUringQueue::~IoUringQueue() {
  if (getpid() != owner_) {
    requests_
        .abandon();  // the ring's memory is shared with the parent: closing it is all we may do
    return;
  }
  for (uint32_t i = 0; i < depth(); ++i) ZO_CHECK(!requests_.holds(i) || progress_[i].cancelled);
  while (in_flight() > 0) {
    if (poll() > 0) continue;
    const int sent = io_uring_submit_and_wait(ring_->get(), 1);
    ZO_CHECK(sent >= 0 || try_again_later(sent));
  }
  // Closing a ring gives its pages and files back some time later; the next queue wants them now.
  if (!arena_.empty()) io_uring_unregister_buffers(ring_->get());
  if (file_table_) io_uring_unregister_files(ring_->get());
}

uint64_t IoUringQueue::alignment() const { return kPageBytes; }

const char* IoUringQueue::features() const { return ring_->features(); }

Result<FileId> IoUringQueue::open(const std::string& path, uint64_t bytes) {
  ZO_ASSIGN_OR_RETURN(const FileId file, files_.open(path, bytes));
  const int fd = files_.fd(file);
  // Refused without a table and past its end: the file then goes by its descriptor.
  fixed_files_.push_back(io_uring_register_files_update(ring_->get(), file, &fd, 1) == 1);
  return file;
}

Result<std::string> IoUringQueue::register_arena(HostSpan arena) {
  ZO_CHECK(!arena_offered_);
  arena_offered_ = true;
  std::vector<iovec> slabs;
  for (uint64_t offset = 0; offset < arena.size(); offset += kSlabBytes) {
    slabs.push_back({arena.data() + offset, std::min(kSlabBytes, arena.size() - offset)});
  }
  if (slabs.empty()) return std::string();
  const int error =
      io_uring_register_buffers(ring_->get(), slabs.data(), static_cast<unsigned>(slabs.size()));
  const std::string unregistered =
      format_bytes(arena.size()) +
      " of host memory stay unregistered with io_uring (more CPU time per transfer): ";
  switch (-error) {
    case 0: arena_ = arena; return std::string();
    case ENOMEM:
    case EPERM:
      return unregistered + "the limit on locked memory is too low; raise it with `ulimit -l`";
    case EOPNOTSUPP: return unregistered + "this kernel does not register memory of this kind";
    default: return Status::from_errno(-error, "io_uring: cannot register the arena");
  }
}

void IoUringQueue::submit(const IoRequest& request, Completion& completion) {
  const uint32_t index = requests_.add(request, completion);
  progress_[index] = {};
  to_send_.push_back(index);
}

uint32_t IoUringQueue::poll() {
  uint32_t delivered = send();
  if (in_flight() > 0) {
    const int error = ring_->collect();
    ZO_CHECK(error == 0 || try_again_later(error));
  }
  return delivered + receive();
}

void IoUringQueue::cancel() {
  for (uint32_t i = 0; i < depth(); ++i) {
    if (!requests_.holds(i) || progress_[i].cancelled) continue;
    progress_[i].cancelled = true;
    if (!progress_[i].sent) continue;  // send() will meet it
    io_uring_sqe* sqe = io_uring_get_sqe(ring_->get());
    if (sqe == nullptr) {
      send_to_kernel();
      sqe = io_uring_get_sqe(ring_->get());
    }
    if (sqe == nullptr) continue;  // the kernel is overrun: this one comes back in its own time
    // By name, not by "any": what was in flight at this call, on every kernel in the same way.
    io_uring_prep_rw(IORING_OP_ASYNC_CANCEL, sqe, -1, nullptr, 0, 0);
    sqe->addr = i;
    sqe->user_data = kCancelTag;
  }
  send_to_kernel();
}

// Gives to_send_ to the kernel. Delivers what was cancelled before the kernel saw it.
uint32_t IoUringQueue::send() {
  uint32_t delivered = 0;
  while (!to_send_.empty()) {
    const uint32_t index = to_send_.front();
    if (progress_[index].cancelled) {
      requests_.finish(index, -ECANCELED, files_.path(requests_[index].file));
      ++delivered;
    } else {
      io_uring_sqe* sqe = io_uring_get_sqe(ring_->get());
      if (sqe == nullptr) break;  // the next poll() sends the rest
      prepare(sqe, index);
      progress_[index].sent = true;
    }
    to_send_.pop_front();
  }
  send_to_kernel();
  return delivered;
}

void IoUringQueue::send_to_kernel() {
  if (io_uring_sq_ready(ring_->get()) == 0) return;
  const int sent = io_uring_submit(ring_->get());
  ZO_CHECK(sent >= 0 || try_again_later(sent));
}

void IoUringQueue::prepare(io_uring_sqe* sqe, uint32_t index) {
  const IoRequest& request = requests_[index];
  const bool fixed_file = request.file < fixed_files_.size() && fixed_files_[request.file];
  const int fd = fixed_file ? static_cast<int>(request.file) : files_.fd(request.file);
  if (request.kind == IoRequest::Kind::kFlush) {
    io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
  } else {
    const bool write = request.kind == IoRequest::Kind::kWrite;
    const auto bytes = static_cast<unsigned>(std::min(request.memory.size(), kTransferBytesMax));
    const bool fixed_memory = in_one_slab(request.memory);
    const int plain = write ? IORING_OP_WRITE : IORING_OP_READ;
    const int fixed = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
    io_uring_prep_rw(fixed_memory ? fixed : plain, sqe, fd, request.memory.data(), bytes,
                     request.offset);
    if (fixed_memory) {
      sqe->buf_index = static_cast<uint16_t>((request.memory.data() - arena_.data()) / kSlabBytes);
    }
  }
  if (fixed_file) sqe->flags |= IOSQE_FIXED_FILE;
  sqe->user_data = index;
}

// Takes every completion that lies in the ring.
uint32_t IoUringQueue::receive() {
  uint32_t delivered = 0;
  unsigned head = 0;
  unsigned count = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(ring_->get(), head, cqe) {
    ++count;
    if (cqe->user_data == kCancelTag) continue;
    if (take_result(static_cast<uint32_t>(cqe->user_data), cqe->res)) ++delivered;
  }
  io_uring_cq_advance(ring_->get(), count);
  return delivered;
}

// Delivers a result and returns true, or queues the request again where the kernel said "not now".
bool IoUringQueue::take_result(uint32_t index, int result) {
  if (result == -EINTR || result == -EAGAIN) {
    if (!progress_[index].cancelled) {
      progress_[index].sent = false;
      to_send_.push_back(index);
      return false;
    }
    result = -ECANCELED;
  }
  requests_.finish(index, result, files_.path(requests_[index].file));
  return true;
}

bool IoUringQueue::in_one_slab(HostSpan memory) const {
  const auto base = reinterpret_cast<uintptr_t>(arena_.data());
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  if (memory.empty() || begin < base) return false;
  const uint64_t first = begin - base;
  const uint64_t last = first + memory.size() - 1;
  return last < arena_.size() && first / kSlabBytes == last / kSlabBytes;
}

}  // namespace zoffload
