// What the implementations of Adam and AdamW share: the checks on a call, and one step's constants.
//
// The step on one element, ordered as the fused kernel of torch.optim.AdamW orders it. Every
// written operation rounds once, fma() as one, and nothing may be reassociated:
//
//   g = grad * grad_scale
//   w = w * decay_factor                                           // AdamW
//   g = fma(w, weight_decay, g)                                    // Adam, if weight_decay != 0
//   m = fma(exp_avg_weight, g - m, lerp_from_grad ? g : m)
//   v = fma(grad_sq_weight * g, g, beta2 * v)
//   w = w - (step_size * m) / (sqrt(v) / bias_correction2_sqrt + eps)
//
// Each NaN that is written is the canonical one.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/ports/optimizer.h"

namespace zoffload {

// Adam adds the decay to the gradient (L2); AdamW shrinks the weights and leaves the moments alone.
enum class WeightDecay : uint8_t { kL2, kDecoupled };

// Derived in double and rounded to float once, here: oracle and kernels start from the same bits.
struct AdamScalars {
  float grad_scale;
  float decay_factor;  // 1 - lr * weight_decay
  float weight_decay;
  float exp_avg_weight;  // 1 - beta1; or -beta1 if lerp_from_grad
  bool lerp_from_grad;   // torch's lerp starts from the nearer end: the gradient when beta1 <= 0.5
  float beta2;
  float grad_sq_weight;         // 1 - beta2
  float bias_correction2_sqrt;  // sqrt(1 - beta2^step)
  float eps;
  float step_size;  // lr / (1 - beta1^step)
};

AdamScalars adam_scalars(const Hyper& hyper, float grad_scale, uint64_t step);

class Adam : public Optimizer {
 public:
  // `name` is a literal: it is kept, not copied.
  Adam(std::string_view name, WeightDecay decay) : name_(name), decay_(decay) {}

  std::string_view name() const final { return name_; }
  MomentSet moments() const final { return {}; }
  void update(const UpdateView& view, const Hyper& hyper, float grad_scale,
              uint64_t step) const final;

 protected:
  WeightDecay decay() const { return decay_; }

 private:
  virtual void do_update(const UpdateView& view, const AdamScalars& scalars) const = 0;

  const std::string_view name_;
  const WeightDecay decay_;
};

}  // namespace zoffload
