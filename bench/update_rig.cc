#include "bench/update_rig.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bench/memory_bound.h"
#include "core/base/bf16.h"
#include "core/base/format.h"
#include "core/plan/layout.h"
#include "cuda/available_memory.h"

namespace zoffload::bench {
namespace {

class OptimizerJob final : public Job {
 public:
  OptimizerJob(const Optimizer& optimizer, const UpdateView& view, uint64_t step,
               const std::vector<double>& sums)
      : optimizer_(optimizer), view_(view), step_(step), sums_(sums) {}
  void run() override { optimizer_.update(view_, Hyper{}, scale_of(sums_), step_); }

 private:
  // Clips at a norm of 1. Random gradients are finite.
  static float scale_of(const std::vector<double>& sums) {
    if (sums.empty()) return 1;
    const double norm = std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
    ZO_CHECK(std::isfinite(norm));
    return static_cast<float>(1 / std::max(norm, 1.0));
  }

  const Optimizer& optimizer_;
  const UpdateView& view_;
  const uint64_t step_;
  const std::vector<double>& sums_;  // of squares, by subgroup; empty: no norm is wanted
};

// Chunk by chunk, as the engine does it.
class NormJob final : public Job {
 public:
  NormJob(const GradientMath& math, const UpdateView& view, double& sum)
      : math_(math), view_(view), sum_(sum) {}
  void run() override {
    const uint64_t chunk = kNormChunk * dtype_bytes(view_.grad_dtype);
    double sum = 0;
    for (uint64_t at = 0; at < view_.grad.size(); at += chunk) {
      const uint64_t bytes = std::min<uint64_t>(chunk, view_.grad.size() - at);
      sum += math_.sum_of_squares(view_.grad.subspan(at, bytes), view_.grad_dtype);
    }
    sum_ = sum;
  }

 private:
  const GradientMath& math_;
  const UpdateView& view_;
  double& sum_;
};

class ReadJob final : public Job {
 public:
  explicit ReadJob(const UpdateView& view) : view_(view) {}
  void run() override { read_like_norm(view_); }

 private:
  const UpdateView& view_;
};

class StreamJob final : public Job {
 public:
  explicit StreamJob(const UpdateView& view) : view_(view) {}
  void run() override { stream_like_update(view_); }

 private:
  const UpdateView& view_;
};

// Splitmix64: every seed is good, and every value costs a few instructions.
uint64_t next_random(uint64_t& state) {
  uint64_t value = state += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

float small_float(uint64_t random) {
  return (static_cast<float>(random >> 40) - static_cast<float>(1 << 23)) * 0x1p-26f;
}

bool is_split(const UpdateSetup& setup) {
  return setup.dtype != DType::kFloat32 && setup.format.master == MasterFormat::kSplit;
}

uint64_t moments_bytes(const UpdateSetup& setup, uint64_t numel) {
  const uint64_t count = uint64_t{setup.moments.exp_avg} + uint64_t{setup.moments.exp_avg_sq};
  return count * moment_bytes(setup.format.moments, round_up(numel, kMomentBlock));
}

uint64_t master_bytes(const UpdateSetup& setup, uint64_t numel) {
  return numel * (is_split(setup) ? sizeof(uint16_t) : sizeof(float));
}

uint64_t subgroup_numel(const UpdateSetup& setup) {
  const uint64_t chunk_bytes = master_bytes(setup, kNormChunk) + moments_bytes(setup, kNormChunk);
  return std::max<uint64_t>(setup.subgroup_bytes / chunk_bytes, 1) * kNormChunk;
}

// Hands out consecutive page-aligned parts of one piece of memory.
class Carver {
 public:
  explicit Carver(HostSpan rest) : rest_(rest) {}
  HostSpan take(uint64_t bytes) {
    const HostSpan part = rest_.first(bytes);
    rest_ = rest_.subspan(std::min<uint64_t>(round_up(bytes, kPageBytes), rest_.size()));
    return part;
  }

 private:
  HostSpan rest_;
};

}  // namespace

void fill_random(HostSpan memory, DType dtype, uint64_t seed) {
  uint64_t state = seed;
  state = next_random(state);  // neighbouring seeds would give the same values, one place further
  if (dtype == DType::kFloat32) {
    for (float& value : elements<float>(memory)) value = small_float(next_random(state));
  } else {
    for (uint16_t& value : elements<uint16_t>(memory)) {
      value = bf16_from_float(small_float(next_random(state)));
    }
  }
}

Status check_memory(uint64_t bytes, const std::string& what, const std::string& remedy) {
  const uint64_t available = available_memory_bytes();
  if (bytes <= available) return Status();
  return Status(Code::kOutOfMemory, what + " needs " + format_bytes(bytes) + " of memory, " +
                                        format_bytes(available) + " are available: " + remedy);
}

uint64_t UpdateRig::memory_bytes(const UpdateSetup& setup) {
  const uint64_t param = setup.dtype == DType::kFloat32 ? 0 : dtype_bytes(setup.dtype);
  const uint64_t subgroups = ceil_div(setup.numel, subgroup_numel(setup));
  return master_bytes(setup, setup.numel) + moments_bytes(setup, setup.numel) +
         setup.numel * (dtype_bytes(setup.dtype) + param) +
         subgroups * 8 * kPageBytes;  // each array begins a page
}

zoffload::Result<std::unique_ptr<UpdateRig>> UpdateRig::open(const UpdateSetup& setup) {
  ZO_CHECK(setup.numel > 0);
  ZO_TRY(check_memory(memory_bytes(setup),
                      "an update of " + std::to_string(setup.numel) + " parameters",
                      "give a smaller --numel"));
  std::unique_ptr<UpdateRig> rig(new UpdateRig());
  ZO_ASSIGN_OR_RETURN(const HostSpan memory, rig->memory_.allocate_pinned(memory_bytes(setup)));
  Carver carver(memory);
  const uint64_t numel_max = subgroup_numel(setup);
  const auto take_moment = [&carver, &setup](uint64_t numel) {
    const bool scaled = setup.format.moments == MomentFormat::kInt8;
    const uint64_t padded = round_up(numel, kMomentBlock);
    const uint64_t scales = scaled ? padded / kMomentBlock : 0;
    const HostSpan all = carver.take(moment_bytes(setup.format.moments, padded));
    const uint64_t value_bytes = (all.size() - scales * sizeof(float)) / padded;
    return MomentView(all.first(numel * value_bytes),
                      elements<float>(all.last(scales * sizeof(float))));
  };
  for (uint64_t begin = 0; begin < setup.numel; begin += numel_max) {
    const uint64_t numel = std::min(numel_max, setup.numel - begin);
    UpdateView view;
    const HostSpan master = carver.take(master_bytes(setup, numel));
    if (is_split(setup)) {
      view.residual = elements<uint16_t>(master);
    } else {
      view.master = elements<float>(master);
      fill_random(master, DType::kFloat32, setup.seed + begin);
    }
    view.moments = setup.format.moments;
    if (setup.moments.exp_avg) view.exp_avg = take_moment(numel);
    if (setup.moments.exp_avg_sq) view.exp_avg_sq = take_moment(numel);
    view.first = begin;
    if (setup.dtype != DType::kFloat32) {
      view.param = elements<uint16_t>(carver.take(numel * sizeof(uint16_t)));
    }
    const HostSpan grad = carver.take(numel * dtype_bytes(setup.dtype));
    if (is_split(setup)) {
      fill_random(std::as_writable_bytes(view.param), setup.dtype, setup.seed + begin);
    }
    fill_random(grad, setup.dtype, setup.seed + begin + 1);
    view.grad = grad;
    view.grad_dtype = setup.dtype;
    rig->views_.push_back(view);
  }
  rig->numel_ = setup.numel;
  return rig;
}

zoffload::Result<UpdatePass> UpdateRig::update(const Optimizer& optimizer, Workers& workers,
                                               const Stopped& stopped, const GradientMath* norm) {
  ++step_;
  std::vector<double> sums(norm == nullptr ? 0 : views_.size());
  Jobs norms;
  Jobs updates;
  for (size_t i = 0; i < views_.size(); ++i) {
    if (norm != nullptr) norms.push_back(std::make_unique<NormJob>(*norm, views_[i], sums[i]));
    updates.push_back(std::make_unique<OptimizerJob>(optimizer, views_[i], step_, sums));
  }
  return run({&norms, &updates}, workers, stopped);
}

zoffload::Result<UpdatePass> UpdateRig::stream(Workers& workers, const Stopped& stopped,
                                               bool norm) {
  Jobs reads;
  Jobs streams;
  for (const UpdateView& view : views_) {
    if (norm) reads.push_back(std::make_unique<ReadJob>(view));
    streams.push_back(std::make_unique<StreamJob>(view));
  }
  return run({&reads, &streams}, workers, stopped);
}

// One pass after the other; the last one says what was updated.
zoffload::Result<UpdatePass> UpdateRig::run(const std::vector<const Jobs*>& passes,
                                            Workers& workers, const Stopped& stopped) {
  UpdatePass whole;
  for (const Jobs* jobs : passes) {
    if (jobs->empty()) continue;
    ZO_ASSIGN_OR_RETURN(const PassTime time, run_jobs(*jobs, workers, stopped));
    whole.time.seconds += time.seconds;
    whole.time.cpu_seconds += time.cpu_seconds;
    whole.time.done_count = time.done_count;
    if (time.done_count == jobs->size()) continue;
    if (jobs != passes.back()) whole.time.done_count = 0;
    break;
  }
  for (size_t i = 0; i < whole.time.done_count; ++i) whole.numel += views_[i].numel();
  return whole;
}

}  // namespace zoffload::bench
