// The arithmetic of one optimizer: a pure function over spans. Every implementation gives the same
// bits on every instruction set, for every thread count and for every way of cutting a parameter
// into pieces.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/span.h"
#include "core/base/types.h"

namespace zoffload {

// The settings of one parameter group, read at step time. Python's doubles, as torch keeps them.
struct Hyper {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  friend bool operator==(const Hyper&, const Hyper&) = default;
};

// A contiguous piece of one parameter, all spans over the same `numel` elements.
struct UpdateView {
  std::span<float> master;      // in and out: the fp32 weights
  std::span<float> exp_avg;     // in and out
  std::span<float> exp_avg_sq;  // in and out
  std::span<uint16_t> param;    // out: the weights rounded to bf16; empty for fp32 models
  ConstHostSpan grad;           // in: numel elements of grad_dtype
  DType grad_dtype = DType::kFloat32;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;  // "adamw", "adam"

  // One step on `view`. The gradient is multiplied by grad_scale first (unscale and clip; 1 leaves
  // its bits alone). `step` counts this parameter's updates, from 1. Called from several workers at
  // once. Never throws.
  virtual void update(const UpdateView& view, const Hyper& hyper, float grad_scale,
                      uint64_t step) const = 0;
};

}  // namespace zoffload
