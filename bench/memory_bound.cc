#include "bench/memory_bound.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/stream_tiles.h"
#include "core/plan/plan.h"
#include "cuda/host_device.h"
#include "optim/rule_optimizer.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kCopyBytes = uint64_t{4} << 20;  // of one job: like a subgroup's single stream

// Elements of one look at all streams: as the update's tiles, and whole blocks of int8 moments.
constexpr size_t kTileNumel = 512;
static_assert(kTileNumel % kMomentBlock == 0);

template <typename T>
Stream stream_of(std::span<T> values) {
  return {std::as_writable_bytes(values), kTileNumel * sizeof(T)};
}

void add_moment(std::vector<Stream>& streams, const MomentView& moment, size_t numel) {
  if (moment.values.empty()) return;
  streams.push_back({moment.values, kTileNumel * (moment.values.size() / numel)});
  if (moment.scales.empty()) return;
  streams.push_back(
      {std::as_writable_bytes(moment.scales), kTileNumel / kMomentBlock * sizeof(float)});
}

class CopyJob final : public Job {
 public:
  CopyJob(HostSpan from, HostSpan to) : from_(from), to_(to) {}
  void run() override { std::memcpy(to_.data(), from_.data(), from_.size()); }

 private:
  HostSpan from_;
  HostSpan to_;
};

}  // namespace

void stream_like_update(const UpdateView& view) {
  const size_t numel = view.numel();
  const bool split = !view.residual.empty();
  std::vector<Stream> kept = {split ? stream_of(view.residual) : stream_of(view.master)};
  if (split) kept.push_back(stream_of(view.param));
  add_moment(kept, view.exp_avg, numel);
  add_moment(kept, view.exp_avg_sq, numel);
  StreamSet streams;
  streams.read = view.grad;
  streams.read_tile_bytes = kTileNumel * dtype_bytes(view.grad_dtype);
  streams.rewritten = kept;
  if (!split) streams.written = stream_of(view.param);
  streams.past_cache = streams.written.bytes.size() >= kStreamedBytesMin;
  streams.tiles = ceil_div(numel, kTileNumel);
  pass_over(streams);
}

void read_like_norm(const UpdateView& view) { pass_over(view.grad); }

double update_stream_bytes(DType dtype, StateFormat format, MomentSet moments) {
  BucketLayout bucket;
  bucket.dtype = dtype;
  bucket.format = format;
  bucket.moments = moments;
  return static_cast<double>(update_traffic_bytes(bucket, dtype, kMomentBlock)) / kMomentBlock;
}

zoffload::Result<Samples> measure_memory_copy(uint64_t bytes, uint32_t repeats, Workers& workers,
                                              const Stopped& stopped) {
  HostDevice memory;
  ZO_ASSIGN_OR_RETURN(const HostSpan from, memory.allocate_pinned(bytes));
  ZO_ASSIGN_OR_RETURN(const HostSpan to, memory.allocate_pinned(bytes));
  Jobs jobs;
  for (uint64_t at = 0; at < bytes; at += kCopyBytes) {
    const uint64_t part = std::min(kCopyBytes, bytes - at);
    jobs.push_back(std::make_unique<CopyJob>(from.subspan(at, part), to.subspan(at, part)));
  }
  Samples samples;
  for (uint32_t repeat = 0; repeat <= repeats; ++repeat) {
    ZO_ASSIGN_OR_RETURN(const PassTime time, run_jobs(jobs, workers, stopped));
    if (time.done_count < jobs.size()) break;
    if (repeat == 0) continue;  // wakes the workers
    samples.values.push_back(2 * static_cast<double>(bytes) / time.seconds);
  }
  return samples;
}

}  // namespace zoffload::bench
