// One parameter with its state in any format, for the suites of the optimizers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "core/base/bf16.h"
#include "core/ports/optimizer.h"
#include "optim/state_codec.h"

namespace zoffload {

// Memory that starts at a cache line, so that a test chooses what is aligned.
template <typename T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(64)));
  }
  void deallocate(T* memory, size_t) { ::operator delete(memory, std::align_val_t(64)); }
  friend bool operator==(const LineAllocator&, const LineAllocator&) = default;
};
template <typename T>
using Lines = std::vector<T, LineAllocator<T>>;

struct PlainState {
  explicit PlainState(size_t numel)
      : master(numel), exp_avg(numel), exp_avg_sq(numel), grad(numel) {}
  std::vector<float> master, exp_avg, exp_avg_sq, grad;
};

// Every array lies `offset` elements into a larger one whose other elements must stay as they are.
struct FormatState {
  static constexpr size_t kGuard = 64;  // elements before and after

  FormatState(StateFormat format, MomentSet kept, const PlainState& plain, size_t offset = 0)
      : format(format),
        kept(kept),
        numel(plain.master.size()),
        begin(kGuard + offset),
        master(begin + numel + kGuard, 1.0f),
        grad(master),
        param(master.size(), 1),
        residual(param),
        grad16(param),
        exp_avg(master.size() * sizeof(float), std::byte{0x5a}),
        exp_avg_sq(exp_avg),
        scales((numel + kMomentBlock - 1) / kMomentBlock + 1, 3.0f),
        scales_sq(scales) {
    if (is_split()) {
      codec.split(plain.master, part(param), part(residual));
    } else {
      std::copy(plain.master.begin(), plain.master.end(), part(master).begin());
    }
    const auto encode = [&](bool is_kept, Moment moment, const std::vector<float>& from) {
      if (is_kept) codec.encode(moment, format.moments, from, moment_view(moment, 0, numel));
    };
    encode(kept.exp_avg, Moment::kExpAvg, plain.exp_avg);
    encode(kept.exp_avg_sq, Moment::kExpAvgSq, plain.exp_avg_sq);
    set_grad(plain.grad);
  }

  bool is_split() const { return format.master == MasterFormat::kSplit; }

  void set_grad(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), part(grad).begin());
    std::transform(values.begin(), values.end(), part(grad16).begin(), bf16_from_float);
  }

  // `count` elements from `from` on.
  UpdateView view(DType grad_dtype, bool has_param, size_t from, size_t count) {
    UpdateView view;
    if (is_split()) view.residual = part(residual).subspan(from, count);
    if (!is_split()) view.master = part(master).subspan(from, count);
    if (is_split() || has_param) view.param = part(param).subspan(from, count);
    if (kept.exp_avg) view.exp_avg = moment_view(Moment::kExpAvg, from, count);
    if (kept.exp_avg_sq) view.exp_avg_sq = moment_view(Moment::kExpAvgSq, from, count);
    const bool wide = grad_dtype == DType::kFloat32;
    view.grad_dtype = grad_dtype;
    view.grad = wide ? ConstHostSpan(std::as_bytes(part(grad).subspan(from, count)))
                     : ConstHostSpan(std::as_bytes(part(grad16).subspan(from, count)));
    view.moments = format.moments;
    view.seed = seed;
    view.first = first + from;
    return view;
  }
  UpdateView view() { return view(DType::kFloat32, true, 0, numel); }

  std::vector<float> weights() {
    std::vector<float> values(numel);
    if (is_split()) {
      codec.join(part(param), part(residual), values);
    } else {
      std::copy_n(part(master).begin(), numel, values.begin());
    }
    return values;
  }
  std::vector<float> moment(Moment moment) {
    std::vector<float> values(numel);
    codec.decode(moment, format.moments, moment_view(moment, 0, numel), values);
    return values;
  }

  template <typename T>
  std::span<T> part(Lines<T>& values) {
    return std::span(values).subspan(begin, numel);
  }
  MomentView moment_view(Moment moment, size_t from, size_t count) {
    const bool int8 = format.moments == MomentFormat::kInt8;
    const size_t bytes = int8 ? 1 : moment_bytes(format.moments, 1);
    MomentView view;
    view.values = HostSpan(moment == Moment::kExpAvg ? exp_avg : exp_avg_sq)
                      .subspan((begin + from) * bytes, count * bytes);
    if (int8) {
      view.scales = std::span(moment == Moment::kExpAvg ? scales : scales_sq)
                        .subspan(from / kMomentBlock, (count + kMomentBlock - 1) / kMomentBlock);
    }
    return view;
  }

  StateFormat format;
  MomentSet kept;
  size_t numel;
  size_t begin;
  uint64_t seed = 77;
  uint64_t first = 0;  // of the elements, in their parameter
  Lines<float> master, grad;
  Lines<uint16_t> param, residual, grad16;
  Lines<std::byte> exp_avg, exp_avg_sq;
  Lines<float> scales, scales_sq;
  ScalarStateCodec codec;
};

}  // namespace zoffload
