// The arithmetic of one optimizer: a pure function over spans. Every implementation gives the same
// bits on every instruction set, for every thread count and for every way of cutting a parameter
// into pieces.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/span.h"
#include "core/base/state_format.h"
#include "core/base/types.h"

namespace zoffload {

// The settings of one parameter group, read at step time. Python's doubles, as torch keeps them. An
// optimizer reads those it has.
struct Hyper {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double momentum = 0.0;  // SGD
  double dampening = 0.0;
  bool nesterov = false;
  double lr_decay = 0.0;  // Adagrad
  friend bool operator==(const Hyper&, const Hyper&) = default;
};

enum class Moment : uint8_t { kExpAvg, kExpAvgSq };

// One moment of a piece, as it is stored. Empty where the optimizer does not keep it.
struct MomentView {
  MomentView() = default;
  MomentView(std::span<float> floats) : values(std::as_writable_bytes(floats)) {}
  MomentView(HostSpan values, std::span<float> scales) : values(values), scales(scales) {}

  HostSpan values;            // float, bf16 bits, or int8 codes, one for each element
  std::span<float> scales{};  // int8: of each kMomentBlock elements, the last block may be short
};

// A contiguous piece of one parameter, all spans over the same numel() elements, in and out unless
// said otherwise. Either `master` or `residual` is given.
struct UpdateView {
  std::span<float> master;  // the fp32 weights
  MomentView exp_avg;
  MomentView exp_avg_sq;
  std::span<uint16_t> param;  // the weights in bf16; out only, but for a split master; empty for
                              // fp32 models
  ConstHostSpan grad;         // in: of grad_dtype
  DType grad_dtype = DType::kFloat32;
  std::span<uint16_t> residual{};  // of a split master, whose other half is `param`
  MomentFormat moments = MomentFormat::kFloat32;
  // What stochastic rounding draws from, beside the step: equal for equal elements, however they
  // are cut and wherever they lie.
  uint64_t seed = 0;   // of the parameter
  uint64_t first = 0;  // of the elements, in the parameter; in int8 a multiple of kMomentBlock

  size_t numel() const { return master.empty() ? residual.size() : master.size(); }
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;  // "adamw", "adam"
  virtual MomentSet moments() const = 0;      // that it keeps

  // One step on `view`. The gradient is multiplied by grad_scale first (unscale and clip; 1 leaves
  // its bits alone). `step` counts this parameter's updates, from 1. Called from several workers at
  // once. Never throws.
  virtual void update(const UpdateView& view, const Hyper& hyper, float grad_scale,
                      uint64_t step) const = 0;
};

}  // namespace zoffload
