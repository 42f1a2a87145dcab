#include "aio/io_uring_queue.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
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

// Room for 1 TiB of memory, in up to as many pieces.
constexpr uint32_t kMemoryPlaces = 2048;

// Later files work too, at the price of a lookup for each request.
constexpr uint32_t kFixedFiles = 64;

// user_data of what nobody waits for: cancels, and requests that were taken back. No request has
// this index.
constexpr uint64_t kNobody = ~uint64_t{0};

// Errors of io_uring_enter() that say "later"; the others are mistakes of ours. -EBADR says that a
// completion was lost, which give_up_lost() sees by itself.
bool try_again_later(int error) {
  switch (-error) {
    case EAGAIN:
    case EBUSY:
    case EINTR:
    case ENOMEM:
    case ETIME:
    case EBADR: return true;
    default: return false;
  }
}

}  // namespace

Result<std::unique_ptr<IoUringQueue>> IoUringQueue::create(IoQueueOptions options) {
  ZO_CHECK(options.depth > 0);
  ZO_ASSIGN_OR_RETURN(auto ring, Ring::create(options.depth, options.first_rung));
  options.depth = std::min(options.depth, io_uring_sq_space_left(ring->get()));
  return std::unique_ptr<IoUringQueue>(new IoUringQueue(std::move(ring), options));
}

IoUringQueue::IoUringQueue(std::unique_ptr<Ring> ring, const IoQueueOptions& options)
    : FileQueue(options), ring_(std::move(ring)) {
  const std::vector<int> empty(kFixedFiles, -1);
  file_table_ = io_uring_register_files(ring_->get(), empty.data(), kFixedFiles) == 0;
  const std::vector<iovec> nothing(kMemoryPlaces);
  memory_table_ = io_uring_register_buffers(ring_->get(), nothing.data(), kMemoryPlaces) == 0;
  if (!memory_table_) return;
  for (uint32_t place = kMemoryPlaces; place > 0; --place) places_.push_back(place - 1);
}

IoUringQueue::~IoUringQueue() {
  // The ring's memory is shared with the parent: closing it is all that a child may do.
  if (abandoned_in_child()) return;
  drain();
  // Closing a ring gives its pages and files back some time later; the next queue wants them now.
  if (memory_table_) io_uring_unregister_buffers(ring_->get());
  if (file_table_) io_uring_unregister_files(ring_->get());
}

const char* IoUringQueue::features() const { return ring_->features(); }

void IoUringQueue::attached(FileId file) {
  if (file >= fixed_files_.size()) fixed_files_.resize(file + 1);
  const int fd = files().fd(file);
  // Refused without a table and past its end: the file then goes by its descriptor.
  fixed_files_[file] = io_uring_register_files_update(ring_->get(), file, &fd, 1) == 1;
}

// The kernel's table holds the file open by itself.
void IoUringQueue::detaching(FileId file) {
  if (!fixed_files_[file]) return;
  const int none = -1;
  const int updated = io_uring_register_files_update(ring_->get(), file, &none, 1);
  ZO_CHECK(updated == 1);
  fixed_files_[file] = false;
}

// All of the arena or nothing: a part would make speed a matter of luck.
Result<std::string> IoUringQueue::register_arena(HostSpan arena) {
  int error = 0;
  uint64_t offset = 0;
  while (error == 0 && offset < arena.size()) {
    const uint64_t bytes = std::min(kSlabBytes, arena.size() - offset);
    error = add_slab(arena.subspan(offset, bytes));
    if (error == 0) offset += bytes;
  }
  if (error != 0) unregister_arena(arena.first(offset));
  const std::string unregistered =
      format_bytes(arena.size()) +
      " of host memory stay unregistered with io_uring (more CPU time per transfer): ";
  switch (-error) {
    case 0: return std::string();
    case ENOMEM:
    case EPERM:
      return unregistered + "the limit on locked memory is too low; raise it with `ulimit -l`";
    case EOPNOTSUPP: return unregistered + "this kernel does not register memory of this kind";
    case ENXIO: return unregistered + "this kernel has no table for it (5.13 has)";
    case EMFILE: return unregistered + "the table for it is full";
    default: return Status::from_errno(-error, "io_uring: cannot register the arena");
  }
}

int IoUringQueue::add_slab(HostSpan memory) {
  if (!memory_table_) return -ENXIO;
  if (places_.empty()) return -EMFILE;
  const uint32_t place = places_.back();
  const int error = set_place(place, memory);
  if (error != 0) return error;
  places_.pop_back();
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  const bool added = slabs_.emplace(address, Slab{memory.size(), place}).second;
  ZO_CHECK(added);
  return 0;
}

void IoUringQueue::unregister_arena(HostSpan arena) {
  const auto begin = reinterpret_cast<uintptr_t>(arena.data());
  for (auto slab = slabs_.lower_bound(begin);
       slab != slabs_.end() && slab->first < begin + arena.size(); slab = slabs_.erase(slab)) {
    const uint32_t place = slab->second.place;
    const int error = set_place(place, {});
    ZO_CHECK(error == 0);
    places_.push_back(place);
  }
}

// One place a call: of several, the kernel may set the first few and call it a success.
int IoUringQueue::set_place(uint32_t place, HostSpan memory) {
  const iovec piece = {memory.data(), memory.size()};
  const int set = io_uring_register_buffers_update_tag(ring_->get(), place, &piece, nullptr, 1);
  return set == 1 ? 0 : set < 0 ? set : -ENOMEM;
}

bool IoUringQueue::start(uint32_t index) {
  io_uring* const ring = ring_->get();
  if (!enter()) return false;  // what was refused before goes first
  io_uring_sqe* const sqe = io_uring_get_sqe(ring);
  ZO_CHECK(sqe != nullptr);  // the kernel has taken all others
  prepare(sqe, index);
  if (enter()) return true;
  // It lies in the ring and cannot be taken out, but it may be cancelled before the kernel takes
  // it: it becomes nothing, and is prepared anew when its turn comes.
  io_uring_prep_nop(sqe);
  sqe->user_data = kNobody;
  return false;
}

// Gives the kernel what lies in the ring. True if it took everything.
bool IoUringQueue::enter() {
  io_uring* const ring = ring_->get();
  if (io_uring_sq_ready(ring) == 0) return true;
  const int taken = io_uring_submit(ring);
  ZO_CHECK(taken >= 0 || try_again_later(taken));
  if (taken > 0) unanswered_ += static_cast<uint32_t>(taken);
  return io_uring_sq_ready(ring) == 0;
}

bool IoUringQueue::collect(uint64_t ns_max) {
  enter();  // cancels that were refused
  const int error = ring_->collect(ns_max);
  ZO_CHECK(error == 0 || try_again_later(error));
  reap();
  return error != -EINTR;
}

void IoUringQueue::ask_back(const std::vector<uint32_t>& indices) {
  io_uring* const ring = ring_->get();
  for (const uint32_t index : indices) {
    io_uring_sqe* sqe = io_uring_get_sqe(ring);
    if (sqe == nullptr) {
      enter();
      sqe = io_uring_get_sqe(ring);
    }
    if (sqe == nullptr) break;  // the kernel is overrun: the rest comes back in its own time
    // By name, not by "any": what was in flight at this call, on every kernel in the same way.
    io_uring_prep_rw(IORING_OP_ASYNC_CANCEL, sqe, -1, nullptr, 0, 0);
    sqe->addr = index;
    sqe->user_data = kNobody;
  }
  enter();
}

void IoUringQueue::prepare(io_uring_sqe* sqe, uint32_t index) {
  const IoRequest& request = this->request(index);
  const bool fixed_file = request.file < fixed_files_.size() && fixed_files_[request.file];
  const int fd = fixed_file ? static_cast<int>(request.file) : files().fd(request.file);
  if (request.kind == IoRequest::Kind::kFlush) {
    io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
  } else {
    const bool write = request.kind == IoRequest::Kind::kWrite;
    const auto bytes = static_cast<unsigned>(std::min(request.memory.size(), kTransferBytesMax));
    const Slab* const slab = slab_of(request.memory);
    const int plain = write ? IORING_OP_WRITE : IORING_OP_READ;
    const int fixed = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
    io_uring_prep_rw(slab != nullptr ? fixed : plain, sqe, fd, request.memory.data(), bytes,
                     request.offset);
    if (slab != nullptr) sqe->buf_index = static_cast<uint16_t>(slab->place);
  }
  if (fixed_file) sqe->flags |= IOSQE_FIXED_FILE;
  sqe->user_data = index;
}

// Takes every completion that lies in the ring. A request is cancelled at most once, so results and
// cancels are at most twice the depth, and no ring has room for fewer. The kernel keeps the few
// that refused requests may add, until there is room.
void IoUringQueue::reap() {
  unsigned head = 0;
  unsigned count = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(ring_->get(), head, cqe) {
    ++count;
    if (cqe->user_data != kNobody) arrived(static_cast<uint32_t>(cqe->user_data), cqe->res);
  }
  io_uring_cq_advance(ring_->get(), count);
  unanswered_ -= count;
  if (unanswered_ > 0) give_up_lost();
}

// A kernel without memory may lose completions, and counts them. Once only those are missing, the
// kernel is done with the memory of all requests, and those without a result have failed.
void IoUringQueue::give_up_lost() {
  const unsigned lost = __atomic_load_n(ring_->get()->cq.koverflow, __ATOMIC_ACQUIRE) - lost_;
  if (lost < unanswered_) return;
  lost_ += lost;
  unanswered_ = 0;
  for (uint32_t i = 0; i < depth(); ++i) {
    if (started(i)) arrived(i, -EBADR);
  }
}

const IoUringQueue::Slab* IoUringQueue::slab_of(HostSpan memory) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const auto next = slabs_.upper_bound(begin);
  if (next == slabs_.begin()) return nullptr;
  const auto& [base, slab] = *std::prev(next);
  return memory.size() <= slab.bytes && begin - base <= slab.bytes - memory.size() ? &slab
                                                                                   : nullptr;
}

}  // namespace zoffload
