#include "bench/memory_bound.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cuda/host_device.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kCopyBytes = uint64_t{4} << 20;  // of one job: like a subgroup's single stream

// Zero, which the compiler does not know: the gradient has to be read, and nothing changes.
volatile uint32_t no_bits = 0;

float with_bits(float value, uint32_t bits) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ bits);
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t bits_of(uint16_t value) { return value; }

template <typename Grad>
void stream(const UpdateView& view, std::span<const Grad> grads) {
  const size_t numel = view.master.size();
  float* __restrict master = view.master.data();
  float* __restrict exp_avg = elements<float>(view.exp_avg.values).data();
  float* __restrict exp_avg_sq = elements<float>(view.exp_avg_sq.values).data();
  uint16_t* __restrict param = view.param.data();
  const Grad* __restrict grad = grads.data();
  const uint32_t mask = no_bits;
  const auto touch = [=](size_t i) {
    const uint32_t bits = bits_of(grad[i]) & mask;
    master[i] = with_bits(master[i], bits);
    exp_avg[i] = with_bits(exp_avg[i], bits);
    exp_avg_sq[i] = with_bits(exp_avg_sq[i], bits);
  };
  if (view.param.empty()) {
    for (size_t i = 0; i < numel; ++i) touch(i);
    return;
  }
  for (size_t i = 0; i < numel; ++i) {
    touch(i);
    param[i] = static_cast<uint16_t>(bits_of(master[i]) >> 16);
  }
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
  if (view.grad_dtype == DType::kFloat32) {
    stream(view, elements<float>(view.grad));
  } else {
    stream(view, elements<uint16_t>(view.grad));
  }
}

uint64_t update_stream_bytes(DType dtype) {
  const uint64_t state = 3 * sizeof(float);  // master and two moments
  const uint64_t grad = dtype_bytes(dtype);
  const uint64_t param = dtype == DType::kFloat32 ? 0 : dtype_bytes(dtype);  // fp32: the master
  return grad + state + state + param;
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
