// Adam adds the decay to the gradient (L2); AdamW shrinks the weights and leaves the moments alone.
//
// The step on one element, ordered as the fused kernel of torch.optim.AdamW orders it. Every
// written operation rounds once, fma() as one, and nothing may be reassociated:
//
//   w = w * decay_factor                                           // AdamW
//   g = fma(w, weight_decay, g)                                    // Adam, if weight_decay != 0
//   m = fma(exp_avg_weight, g - m, lerp_from_grad ? g : m)
//   v = fma(grad_sq_weight * g, g, beta2 * v)
//   w = w - (step_size * m) / (sqrt(v) / bias_correction2_sqrt + eps)
#ifndef ZOFFLOAD_OPTIM_ADAM_
#define ZOFFLOAD_OPTIM_ADAM_

#include "optim/rule.h"
#include "optim/simd_config.h"

namespace zoffload {

enum class WeightDecay : uint8_t { kL2, kDecoupled };

struct AdamConstants {
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

}  // namespace zoffload
#endif  // what the targets share

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/adam.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include "optim/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

template <WeightDecay kDecay>
struct AdamRule {
  static constexpr MomentSet kMoments{};
  AdamConstants s;

  // step_element() below, operation by operation.
  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V& m, V& v, V g) const {
    if constexpr (kDecay == WeightDecay::kDecoupled) {
      w = hn::Mul(w, hn::Set(d, s.decay_factor));
    } else if (s.weight_decay != 0.0f) {
      g = fused_multiply_add(d, w, hn::Set(d, s.weight_decay), g);
    }
    V base = m;
    if (s.lerp_from_grad) base = g;
    m = fused_multiply_add(d, hn::Set(d, s.exp_avg_weight), hn::Sub(g, m), base);
    v = fused_multiply_add(d, hn::Mul(hn::Set(d, s.grad_sq_weight), g), g,
                           hn::Mul(hn::Set(d, s.beta2), v));
    const V unbiased = hn::Div(hn::Sqrt(v), hn::Set(d, s.bias_correction2_sqrt));
    const V denom = hn::Add(unbiased, hn::Set(d, s.eps));
    w = hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, s.step_size), m), denom));
  }
};

template <WeightDecay kDecay>
void step_adam(const RuleConstants& constants, const RuleTile& tile) {
  step_tile(AdamRule<kDecay>{constants.as<AdamConstants>()}, tile);
}

void step_l2(const RuleConstants& constants, const RuleTile& tile) {
  step_adam<WeightDecay::kL2>(constants, tile);
}
void step_decoupled(const RuleConstants& constants, const RuleTile& tile) {
  step_adam<WeightDecay::kDecoupled>(constants, tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

namespace zoffload {

HWY_EXPORT(step_l2);
HWY_EXPORT(step_decoupled);

namespace {

RuleConstants adam_constants(const Hyper& hyper, uint64_t step) {
  const double power = static_cast<double>(step);
  const double bias_correction1 = 1.0 - std::pow(hyper.beta1, power);
  const double bias_correction2 = 1.0 - std::pow(hyper.beta2, power);
  const bool lerp_from_grad = !(1.0 - hyper.beta1 < 0.5);

  AdamConstants constants;
  constants.decay_factor = static_cast<float>(1.0 - hyper.lr * hyper.weight_decay);
  constants.weight_decay = static_cast<float>(hyper.weight_decay);
  constants.exp_avg_weight = static_cast<float>(lerp_from_grad ? -hyper.beta1 : 1.0 - hyper.beta1);
  constants.lerp_from_grad = lerp_from_grad;
  constants.beta2 = static_cast<float>(hyper.beta2);
  constants.grad_sq_weight = static_cast<float>(1.0 - hyper.beta2);
  constants.bias_correction2_sqrt = static_cast<float>(std::sqrt(bias_correction2));
  constants.eps = static_cast<float>(hyper.eps);
  constants.step_size = static_cast<float>(hyper.lr / bias_correction1);
  return RuleConstants(constants);
}

template <WeightDecay kDecay>
void step_element(const RuleConstants& constants, RuleElement& element, float g) {
  const AdamConstants s = constants.as<AdamConstants>();
  float w = element.weight;
  if (kDecay == WeightDecay::kDecoupled) {
    w = w * s.decay_factor;
  } else if (s.weight_decay != 0.0f) {
    g = std::fma(w, s.weight_decay, g);
  }
  const float base = s.lerp_from_grad ? g : element.exp_avg;
  const float m = std::fma(s.exp_avg_weight, g - element.exp_avg, base);
  const float v = std::fma(s.grad_sq_weight * g, g, s.beta2 * element.exp_avg_sq);
  const float denom = std::sqrt(v) / s.bias_correction2_sqrt + s.eps;
  element = {w - (s.step_size * m) / denom, m, v};
}

}  // namespace

OptimizerRule adamw_rule() {
  return {.moments = {},
          .constants = adam_constants,
          .step_element = step_element<WeightDecay::kDecoupled>,
          .step_tile = [](const RuleConstants& constants, const RuleTile& tile) {
            HWY_DYNAMIC_DISPATCH(step_decoupled)(constants, tile);
          }};
}

OptimizerRule adam_rule() {
  return {.moments = {},
          .constants = adam_constants,
          .step_element = step_element<WeightDecay::kL2>,
          .step_tile = [](const RuleConstants& constants, const RuleTile& tile) {
            HWY_DYNAMIC_DISPATCH(step_l2)(constants, tile);
          }};
}

}  // namespace zoffload
#endif  // HWY_ONCE
