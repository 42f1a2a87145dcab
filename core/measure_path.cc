#include "core/measure_path.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "core/base/format.h"
#include "core/base/noise.h"
#include "core/plan/depth_search.h"
#include "tiers/transfer_queue.h"

namespace zoffload {
namespace {

constexpr uint64_t kFileBytes = uint64_t{256} << 20;
constexpr uint64_t kPointBytes = uint64_t{64} << 20;  // read, and as many written, at each depth
constexpr uint64_t kChunkBytes = uint64_t{16} << 20;
constexpr uint32_t kDepthMin = 4;
constexpr uint64_t kWaitNs = 10'000'000;

// One run of transfers on the file, and the time it took.
class Load {
 public:
  Load(FileQueue& queue, FileId file, uint64_t block_bytes, HostSpan scratch, Clock& clock,
       uint64_t stall_timeout_ns)
      : queue_(queue),
        transfers_(queue, block_bytes),
        file_(file),
        clock_(clock),
        stall_timeout_ns_(stall_timeout_ns) {
    const uint64_t half = scratch.size() / 2 / block_bytes * block_bytes;
    chunk_bytes_ = std::min(half, kChunkBytes / block_bytes * block_bytes);
    ZO_CHECK(chunk_bytes_ > 0);
    read_to_ = scratch.first(chunk_bytes_);
    write_from_ = scratch.subspan(half, chunk_bytes_);
    fill_with_noise(write_from_, 0);
  }

  Status fill() {
    transfers_.fill(file_, write_from_, kFileBytes, done_.emplace_back());
    return finish();
  }

  // Reads the first half of the file while the second is written.
  Result<uint64_t> mixed_ns(uint32_t depth) {
    transfers_.set_depth(depth);
    const uint64_t start_ns = clock_.now_ns();
    for (uint64_t at = 0; at + chunk_bytes_ <= kPointBytes; at += chunk_bytes_) {
      transfers_.read(file_, at, read_to_, Urgency::kPrefetch, done_.emplace_back());
      transfers_.write(file_, write_from_, kFileBytes / 2 + at, done_.emplace_back());
    }
    ZO_TRY(finish());
    return std::max<uint64_t>(1, clock_.now_ns() - start_ns);
  }

  uint64_t point_bytes() const { return 2 * (kPointBytes / chunk_bytes_ * chunk_bytes_); }

  bool idle() const { return transfers_.idle(); }

 private:
  // kTimeout when nothing moves: everything is cancelled then, and waited for as long again.
  Status finish() {
    Status status;
    uint64_t moved_bytes = transfers_.moved_bytes();
    uint64_t moved_at_ns = clock_.now_ns();
    while (!transfers_.idle()) {
      if (transfers_.poll() == 0) queue_.wait(kWaitNs);
      const uint64_t now_ns = clock_.now_ns();
      if (moved_bytes != transfers_.moved_bytes()) moved_at_ns = now_ns;
      moved_bytes = transfers_.moved_bytes();
      if (stall_timeout_ns_ == 0 || now_ns - moved_at_ns < stall_timeout_ns_) continue;
      if (!status.ok()) return status;
      const double still_s = static_cast<double>(now_ns - moved_at_ns) * 1e-9;
      status = Status(Code::kTimeout, "nothing has moved for " + format_seconds(still_s));
      transfers_.cancel();
      moved_at_ns = now_ns;
    }
    for (const Completion& each : done_) {
      if (status.ok()) status = each.status();
    }
    done_.clear();
    return status;
  }

  FileQueue& queue_;
  TransferQueue transfers_;
  const FileId file_;
  Clock& clock_;
  const uint64_t stall_timeout_ns_;
  std::deque<Completion> done_;  // of the run
  uint64_t chunk_bytes_;
  HostSpan read_to_;
  HostSpan write_from_;
};

Result<MeasuredPath> search(Load& load, uint32_t depth_max) {
  ZO_TRY(load.fill());
  MeasuredPath measured;
  if (depth_max <= kDepthMin) {  // no depth to search for, but the speed is asked for too
    ZO_ASSIGN_OR_RETURN(const uint64_t ns, load.mixed_ns(depth_max));
    measured.depth = depth_max;
    measured.mixed_bytes_per_s =
        static_cast<double>(load.point_bytes()) * 1e9 / static_cast<double>(ns);
    return measured;
  }
  DepthSearch depths({.depth_min = kDepthMin, .depth_max = depth_max, .gain = 1.02, .rounds = 2});
  while (!depths.done()) {
    ZO_ASSIGN_OR_RETURN(const uint64_t ns, load.mixed_ns(depths.next_depth()));
    depths.report(load.point_bytes(), ns);
  }
  measured.depth = depths.best();
  measured.mixed_bytes_per_s = depths.bytes_per_s();
  return measured;
}

}  // namespace

Result<MeasuredPath> measure_path(FileQueue& queue, const std::string& folder, uint64_t block_bytes,
                                  HostSpan scratch, Clock& clock, uint64_t stall_timeout_ns) {
  ZO_ASSIGN_OR_RETURN(File file, File::create_unnamed(folder, kFileBytes, true));
  ZO_TRY(queue.accepts(file));
  const FileId id = queue.adopt(std::move(file));
  // Of larger blocks one alone keeps a drive busy: nothing is learnt from their size.
  auto load = std::make_unique<Load>(queue, id, std::min(block_bytes, kChunkBytes), scratch, clock,
                                     stall_timeout_ns);
  const Result<MeasuredPath> measured = search(*load, queue.depth());
  if (!load->idle()) {
    // The drive still owns what the load stands on: a leak is the lesser evil.
    static_cast<void>(load.release());
    return measured.status().within(folder);
  }
  load.reset();
  queue.release(id);
  if (!measured.ok()) return measured.status().within(folder);
  return measured;
}

}  // namespace zoffload
