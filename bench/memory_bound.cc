#include "bench/memory_bound.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "cuda/host_device.h"

namespace zoffload::bench {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr uint64_t kCopyBytes = uint64_t{4} << 20;  // of one job: like a subgroup's single stream

// Elements of one look at all streams, as the update's tiles.
constexpr size_t kTileNumel = 512;
// As the update: shorter weights stay in the cache.
constexpr size_t kPastCacheBytesMin = size_t{64} << 10;

// Zero, which the compiler does not know: what is read has to be read, and nothing changes.
volatile uint8_t no_bits = 0;

using Bytes = hn::ScalableTag<uint8_t>;
using Vector = hn::Vec<Bytes>;

Vector load(Bytes d, const std::byte* at) {
  return hn::LoadU(d, reinterpret_cast<const uint8_t*>(at));
}

// The part of a stream that belongs to the tile [begin, begin + numel) of `whole` elements.
template <typename Byte>
std::span<Byte> part(std::span<Byte> stream, size_t begin, size_t numel, size_t whole) {
  return stream.subspan(stream.size() * begin / whole, stream.size() * numel / whole);
}

void rewrite(HostSpan bytes, Vector change) {
  const Bytes d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= bytes.size(); i += step) {
    hn::StoreU(hn::Xor(load(d, bytes.data() + i), change), d,
               reinterpret_cast<uint8_t*>(bytes.data()) + i);
  }
  const auto last = static_cast<std::byte>(hn::GetLane(change));
  for (; i < bytes.size(); ++i) bytes[i] ^= last;
}

Vector read(ConstHostSpan bytes, Vector seen) {
  const Bytes d;
  const size_t step = hn::Lanes(d);
  for (size_t i = 0; i + step <= bytes.size(); i += step) {
    seen = hn::Or(seen, load(d, bytes.data() + i));
  }
  return seen;
}

void write(HostSpan bytes, Vector value, bool past_cache) {
  const Bytes d;
  const size_t step = hn::Lanes(d);
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % step == 0;
  auto* const to = reinterpret_cast<uint8_t*>(bytes.data());
  size_t i = 0;
  for (; i + step <= bytes.size(); i += step) {
    if (past_cache && aligned) {
      hn::Stream(value, d, to + i);
    } else {
      hn::StoreU(value, d, to + i);
    }
  }
  std::memset(to + i, 0, bytes.size() - i);
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
  const Bytes d;
  const size_t whole = view.numel();
  const Vector mask = hn::Set(d, no_bits);
  const bool split = !view.residual.empty();
  const HostSpan param = std::as_writable_bytes(view.param);
  const bool past_cache = !split && param.size() >= kPastCacheBytesMin;
  const HostSpan kept[] = {std::as_writable_bytes(view.master),
                           std::as_writable_bytes(view.residual),
                           view.exp_avg.values,
                           view.exp_avg_sq.values,
                           std::as_writable_bytes(view.exp_avg.scales),
                           std::as_writable_bytes(view.exp_avg_sq.scales),
                           split ? param : HostSpan()};
  for (size_t begin = 0; begin < whole; begin += kTileNumel) {
    const size_t numel = std::min(kTileNumel, whole - begin);
    Vector change = hn::And(read(part(view.grad, begin, numel, whole), mask), mask);
    for (const HostSpan stream : kept) rewrite(part(stream, begin, numel, whole), change);
    if (!split) write(part(param, begin, numel, whole), change, past_cache);
  }
  if (past_cache) hwy::FlushStream();
}

double update_stream_bytes(DType dtype, StateFormat format, MomentSet moments) {
  const bool split = dtype != DType::kFloat32 && format.master == MasterFormat::kSplit;
  const double moment =
      static_cast<double>(moment_bytes(format.moments, kMomentBlock)) / kMomentBlock;
  const double kept = (split ? 2 + 2 : 4) + moment * moments.exp_avg + moment * moments.exp_avg_sq;
  const bool written_only = dtype != DType::kFloat32 && !split;
  return static_cast<double>(dtype_bytes(dtype)) + 2 * kept + (written_only ? 2 : 0);
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
