// Lion, which steps by the sign of a momentum (Chen et al., Symbolic Discovery of Optimization
// Algorithms, 2023). Weight decay shrinks the weights, as in AdamW.
//
// The step on one element. Every written operation rounds once, fma() as one, and nothing may be
// reassociated; the sign of NaN is NaN:
//
//   c = fma(grad_weight1, g, beta1 * m)
//   w = fma(minus_lr, sign(c), w * decay_factor)
//   m = fma(grad_weight2, g, beta2 * m)
#ifndef ZOFFLOAD_OPTIM_LION_
#define ZOFFLOAD_OPTIM_LION_

#include "optim/rule.h"
#include "optim/simd_config.h"

namespace zoffload {

struct LionConstants {
  float decay_factor;  // 1 - lr * weight_decay
  float minus_lr;
  float beta1;
  float grad_weight1;  // 1 - beta1
  float beta2;
  float grad_weight2;  // 1 - beta2
};

}  // namespace zoffload
#endif  // what the targets share

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/lion.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include "optim/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

// step_element() below, operation by operation.
struct LionRule {
  static constexpr MomentSet kMoments{.exp_avg = true, .exp_avg_sq = false};
  LionConstants s;

  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V& m, V& /*exp_avg_sq*/, V g) const {
    const V c =
        fused_multiply_add(d, hn::Set(d, s.grad_weight1), g, hn::Mul(hn::Set(d, s.beta1), m));
    const V zero = hn::Zero(d);
    V sign = hn::IfThenElse(hn::Eq(c, c), zero, c);
    sign = hn::IfThenElse(hn::Gt(c, zero), hn::Set(d, 1.0f), sign);
    sign = hn::IfThenElse(hn::Lt(c, zero), hn::Set(d, -1.0f), sign);
    w = fused_multiply_add(d, hn::Set(d, s.minus_lr), sign, hn::Mul(w, hn::Set(d, s.decay_factor)));
    m = fused_multiply_add(d, hn::Set(d, s.grad_weight2), g, hn::Mul(hn::Set(d, s.beta2), m));
  }
};

void step_lion(const RuleConstants& constants, const RuleTile& tile) {
  step_tile(LionRule{constants.as<LionConstants>()}, tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

namespace zoffload {

HWY_EXPORT(step_lion);

namespace {

RuleConstants lion_constants(const Hyper& hyper, uint64_t /*step*/) {
  LionConstants constants{};
  constants.decay_factor = static_cast<float>(1.0 - hyper.lr * hyper.weight_decay);
  constants.minus_lr = static_cast<float>(-hyper.lr);
  constants.beta1 = static_cast<float>(hyper.beta1);
  constants.grad_weight1 = static_cast<float>(1.0 - hyper.beta1);
  constants.beta2 = static_cast<float>(hyper.beta2);
  constants.grad_weight2 = static_cast<float>(1.0 - hyper.beta2);
  return RuleConstants(constants);
}

void step_element(const RuleConstants& constants, RuleElement& element, float g) {
  const LionConstants s = constants.as<LionConstants>();
  const float m = element.exp_avg;
  const float c = std::fma(s.grad_weight1, g, s.beta1 * m);
  float sign = c == c ? 0.0f : c;
  if (c > 0.0f) sign = 1.0f;
  if (c < 0.0f) sign = -1.0f;
  element.weight = std::fma(s.minus_lr, sign, element.weight * s.decay_factor);
  element.exp_avg = std::fma(s.grad_weight2, g, s.beta2 * m);
}

}  // namespace

OptimizerRule lion_rule() {
  return {.moments = {.exp_avg = true, .exp_avg_sq = false},
          .constants = lion_constants,
          .step_element = step_element,
          .step_tile = [](const RuleConstants& constants, const RuleTile& tile) {
            HWY_DYNAMIC_DISPATCH(step_lion)(constants, tile);
          }};
}

}  // namespace zoffload
#endif  // HWY_ONCE
