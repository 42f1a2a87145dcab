#include "core/sim/sim_disk.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/format.h"

namespace zoffload {
namespace {

std::string describe(const IoRequest& request) {
  const std::string file = std::to_string(request.file);
  if (request.kind == IoRequest::Kind::kFlush) return "flush " + file;
  const char* verb = request.kind == IoRequest::Kind::kRead ? "read " : "write ";
  return verb + file + " " + std::to_string(request.offset) + "+" +
         std::to_string(request.memory.size());
}

}  // namespace

SimIoQueue::SimIoQueue(SimClock& clock, const SimDiskOptions& options, const SimDiskFaults& faults,
                       uint64_t seed, Trace* trace, std::string label)
    : clock_(clock),
      options_(options),
      label_(std::move(label)),
      random_(seed),
      faults_(faults),
      operations_(label_, clock, trace) {
  ZO_CHECK(options.depth > 0);
  ZO_CHECK(options.alignment > 0);
  ZO_CHECK(options.read_bytes_per_ns > 0);
  ZO_CHECK(options.write_bytes_per_ns > 0);
}

SimIoQueue::~SimIoQueue() {
  if (in_flight() == 0) return;
  ZO_CHECK(cancelled_);
  operations_.end_all(Status(Code::kTimeout, label_ + ": cancelled"));
  operations_.poll();
}

Result<FileId> SimIoQueue::open(const std::string& path, uint64_t bytes) {
  if (file(path) != nullptr) return Status::from_errno(EEXIST, path);
  const uint64_t free_bytes = options_.capacity_bytes - used_bytes_;
  if (bytes > free_bytes) {
    return Status(Code::kOutOfSpace, path + ": " + format_bytes(bytes - free_bytes) + " missing",
                  ENOSPC);
  }
  used_bytes_ += bytes;
  files_.push_back({path, SparseFile(bytes)});
  return static_cast<FileId>(files_.size() - 1);
}

Result<std::string> SimIoQueue::register_arena(HostSpan arena) {
  ZO_CHECK(!arena_registered_);
  ZO_CHECK(!submitted_);
  ZO_CHECK(!arena.empty());
  arena_registered_ = true;
  return std::string();
}

void SimIoQueue::submit(const IoRequest& request, Completion& completion) {
  check_request(request);
  submitted_ = true;
  const InFlight::Id id = operations_.start(describe(request), completion);
  const Fate fate = draw_fate(request);
  const uint64_t end_ns = reserve_drive(request.kind, fate.moved_bytes) + fate.delay_ns;
  const uint64_t move_ns = clock_.now_ns() + random_.below(end_ns - clock_.now_ns() + 1);
  operations_.at(move_ns, [this, id, request, fate] {
    // A cancelled request has given its memory back.
    if (operations_.running(id)) move(request, fate);
  });
  if (fate.never) {
    never_.push_back(id);
    return;
  }
  operations_.at(end_ns, [this, id, fate] { operations_.end(id, fate.status, fate.bytes); });
}

void SimIoQueue::cancel() {
  cancelled_ = true;
  for (const InFlight::Id id : std::exchange(never_, {})) {
    operations_.at(clock_.now_ns() + options_.latency_ns, [this, id] {
      operations_.end(id, Status(Code::kTimeout, label_ + ": cancelled", ECANCELED));
    });
  }
}

SparseFile* SimIoQueue::file(const std::string& path) {
  const auto found = std::ranges::find(files_, path, &File::path);
  return found == files_.end() ? nullptr : &found->truth;
}

void SimIoQueue::check_request(const IoRequest& request) const {
  ZO_CHECK(in_flight() < options_.depth);
  ZO_CHECK(request.file < files_.size());
  ZO_CHECK(request.offset % options_.alignment == 0);
  ZO_CHECK(request.memory.size() % options_.alignment == 0);
  ZO_CHECK(reinterpret_cast<uintptr_t>(request.memory.data()) % options_.alignment == 0);
  ZO_CHECK(request.memory.empty() == (request.kind == IoRequest::Kind::kFlush));
  const uint64_t file_bytes = files_[request.file].truth.bytes();
  if (request.kind == IoRequest::Kind::kWrite) {  // a real file would grow, and nobody would notice
    ZO_CHECK(request.offset <= file_bytes);
    ZO_CHECK(request.memory.size() <= file_bytes - request.offset);
  }
}

bool SimIoQueue::strikes(double probability, bool applies, uint64_t& count) {
  const bool hit = random_.chance(probability) && applies;
  if (hit) ++count;
  return hit;
}

SimIoQueue::Fate SimIoQueue::draw_fate(const IoRequest& request) {
  const File& file = files_[request.file];
  const uint64_t left = file.truth.bytes() - std::min(request.offset, file.truth.bytes());
  const uint64_t bytes = std::min<uint64_t>(request.memory.size(), left);
  const uint64_t units = bytes / options_.alignment;
  const bool write = request.kind == IoRequest::Kind::kWrite;

  Fate fate;
  fate.bytes = fate.moved_bytes = bytes;
  const auto fail = [&](int error_number) {
    fate.status = Status::from_errno(error_number, file.path);
    fate.bytes = 0;
    fate.moved_bytes = random_.below(units + 1) * options_.alignment;
  };
  if (strikes(faults_.eio, true, fault_counts_.eio)) {
    fail(EIO);
  } else if (strikes(faults_.enospc, write, fault_counts_.enospc)) {
    fail(ENOSPC);
  } else if (strikes(faults_.short_transfer, units > 1, fault_counts_.short_transfer)) {
    fate.bytes = fate.moved_bytes = (1 + random_.below(units - 1)) * options_.alignment;
  }
  draw_timing(bytes, fate);
  const bool unseen = fate.status.ok() && fate.moved_bytes > 0 && !fate.never;
  if (strikes(faults_.bit_flip, unseen, fault_counts_.bit_flip)) {
    fate.flip = Flip{random_.below(fate.moved_bytes), static_cast<uint32_t>(random_.below(8))};
  }
  return fate;
}

void SimIoQueue::draw_timing(uint64_t bytes, Fate& fate) {
  if (strikes(faults_.slow, true, fault_counts_.slow)) {
    fate.delay_ns += kSlowFactor * options_.latency_ns;
  }
  if (strikes(faults_.reorder, true, fault_counts_.reorder)) {
    const auto transfer_ns = static_cast<uint64_t>(bytes / options_.read_bytes_per_ns);
    fate.delay_ns += random_.below(8 * (options_.latency_ns + transfer_ns) + 1);
  }
  if (strikes(faults_.never, true, fault_counts_.never)) {
    fate.never = true;
    if (random_.chance(0.5)) fate.moved_bytes = 0;
  }
}

// When the drive has moved these bytes after all that was accepted before. A transfer of duration d
// occupies its own direction for d and the other for (1 - duplex) * d, so reads of total R and
// writes of total W take R + W - duplex * min(R, W): the planner's formula.
uint64_t SimIoQueue::reserve_drive(IoRequest::Kind kind, uint64_t bytes) {
  const uint64_t now_ns = clock_.now_ns();
  if (kind == IoRequest::Kind::kFlush)
    return std::max(now_ns, write_free_ns_) + options_.latency_ns;
  const bool read = kind == IoRequest::Kind::kRead;
  const double rate = read ? options_.read_bytes_per_ns : options_.write_bytes_per_ns;
  const double duration_ns = std::ceil(static_cast<double>(bytes) / rate);
  uint64_t& own_free_ns = read ? read_free_ns_ : write_free_ns_;
  uint64_t& other_free_ns = read ? write_free_ns_ : read_free_ns_;
  own_free_ns = std::max(own_free_ns, now_ns) + static_cast<uint64_t>(duration_ns);
  other_free_ns = std::max(other_free_ns, now_ns) +
                  static_cast<uint64_t>(duration_ns * (1.0 - options_.duplex));
  return own_free_ns + options_.latency_ns;
}

void SimIoQueue::move(const IoRequest& request, const Fate& fate) {
  if (fate.moved_bytes == 0) return;
  SparseFile& truth = files_[request.file].truth;
  const HostSpan memory = request.memory.first(fate.moved_bytes);
  if (request.kind == IoRequest::Kind::kWrite) {
    truth.write(request.offset, memory);
    if (fate.flip) truth.flip_bit(request.offset + fate.flip->offset, fate.flip->bit);
  } else {
    truth.read(request.offset, memory);
    if (fate.flip) memory[fate.flip->offset] ^= std::byte{1} << fate.flip->bit;
  }
}

}  // namespace zoffload
