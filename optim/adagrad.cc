// Adagrad.
//
// The step on one element, ordered as the fused kernel of torch.optim.Adagrad orders it. Every
// written operation rounds once, fma() as one, and nothing may be reassociated:
//
//   g = fma(w, weight_decay, g)                                    // if weight_decay != 0
//   v = fma(g, g, v)
//   w = w + (minus_step_size * g) / (sqrt(v) + eps)
#ifndef ZOFFLOAD_OPTIM_ADAGRAD_
#define ZOFFLOAD_OPTIM_ADAGRAD_

#include "optim/rule.h"
#include "optim/simd_config.h"

namespace zoffload {

struct AdagradConstants {
  float weight_decay;
  float minus_step_size;  // -lr / (1 + (step - 1) * lr_decay)
  float eps;
};

}  // namespace zoffload
#endif  // what the targets share

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/adagrad.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include "optim/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

// step_element() below, operation by operation.
struct AdagradRule {
  static constexpr MomentSet kMoments{.exp_avg = false, .exp_avg_sq = true};
  AdagradConstants s;

  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V& /*exp_avg*/, V& v, V g) const {
    if (s.weight_decay != 0.0f) g = fused_multiply_add(d, w, hn::Set(d, s.weight_decay), g);
    v = fused_multiply_add(d, g, g, v);
    const V denom = hn::Add(hn::Sqrt(v), hn::Set(d, s.eps));
    w = hn::Add(w, hn::Div(hn::Mul(hn::Set(d, s.minus_step_size), g), denom));
  }
};

void step_adagrad(const RuleConstants& constants, const RuleTile& tile) {
  step_tile(AdagradRule{constants.as<AdagradConstants>()}, tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

namespace zoffload {

HWY_EXPORT(step_adagrad);

namespace {

RuleConstants adagrad_constants(const Hyper& hyper, uint64_t step) {
  const double decay = 1.0 + static_cast<double>(step - 1) * hyper.lr_decay;
  AdagradConstants constants{};
  constants.weight_decay = static_cast<float>(hyper.weight_decay);
  constants.minus_step_size = static_cast<float>(-hyper.lr / decay);
  constants.eps = static_cast<float>(hyper.eps);
  return RuleConstants(constants);
}

void step_element(const RuleConstants& constants, RuleElement& element, float g) {
  const AdagradConstants s = constants.as<AdagradConstants>();
  if (s.weight_decay != 0.0f) g = std::fma(element.weight, s.weight_decay, g);
  const float v = std::fma(g, g, element.exp_avg_sq);
  element.weight = element.weight + (s.minus_step_size * g) / (std::sqrt(v) + s.eps);
  element.exp_avg_sq = v;
}

}  // namespace

OptimizerRule adagrad_rule() {
  return {.moments = {.exp_avg = false, .exp_avg_sq = true},
          .constants = adagrad_constants,
          .step_element = step_element,
          .step_tile = [](const RuleConstants& constants, const RuleTile& tile) {
            HWY_DYNAMIC_DISPATCH(step_adagrad)(constants, tile);
          }};
}

}  // namespace zoffload
#endif  // HWY_ONCE
