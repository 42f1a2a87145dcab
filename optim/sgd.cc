// Stochastic gradient descent, without momentum and with it.
//
// The step on one element, ordered as torch.optim.SGD orders it. Every written operation rounds
// once, fma() as one, and nothing may be reassociated:
//
//   g = fma(w, weight_decay, g)                                    // if weight_decay != 0
//   b = starts ? g : fma(grad_weight, g, momentum * b)
//   g = nesterov ? fma(momentum, b, g) : b
//   w = fma(minus_lr, g, w)
//
// The lines with b are with momentum only. Where a group of an optimizer that keeps b has momentum
// 0, b stays as it is.
#ifndef ZOFFLOAD_OPTIM_SGD_
#define ZOFFLOAD_OPTIM_SGD_

#include "optim/rule.h"
#include "optim/simd_config.h"

namespace zoffload {

struct SgdConstants {
  float weight_decay;
  float momentum;
  float grad_weight;  // 1 - dampening
  float minus_lr;
  bool nesterov;
  bool starts;  // the first update of this parameter: its gradient is what b starts with
};

}  // namespace zoffload
#endif  // what the targets share

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/sgd.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include "optim/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

// step_element() below, operation by operation.
template <bool kMomentum>
struct SgdRule {
  static constexpr MomentSet kMoments{.exp_avg = kMomentum, .exp_avg_sq = false};
  SgdConstants s;

  template <class D, class V>
  HWY_INLINE void step(D d, V& w, V& b, V& /*exp_avg_sq*/, V g) const {
    if (s.weight_decay != 0.0f) g = fused_multiply_add(d, w, hn::Set(d, s.weight_decay), g);
    if (kMomentum && s.momentum != 0.0f) {
      const V momentum = hn::Set(d, s.momentum);
      if (s.starts) {
        b = g;
      } else {
        b = fused_multiply_add(d, hn::Set(d, s.grad_weight), g, hn::Mul(momentum, b));
      }
      if (s.nesterov) {
        g = fused_multiply_add(d, momentum, b, g);
      } else {
        g = b;
      }
    }
    w = fused_multiply_add(d, hn::Set(d, s.minus_lr), g, w);
  }
};

void step_plain(const RuleConstants& constants, const RuleTile& tile) {
  step_tile(SgdRule<false>{constants.as<SgdConstants>()}, tile);
}
void step_momentum(const RuleConstants& constants, const RuleTile& tile) {
  step_tile(SgdRule<true>{constants.as<SgdConstants>()}, tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

namespace zoffload {

HWY_EXPORT(step_plain);
HWY_EXPORT(step_momentum);

namespace {

RuleConstants sgd_constants(const Hyper& hyper, uint64_t step) {
  SgdConstants constants{};
  constants.weight_decay = static_cast<float>(hyper.weight_decay);
  constants.momentum = static_cast<float>(hyper.momentum);
  constants.grad_weight = static_cast<float>(1.0 - hyper.dampening);
  constants.minus_lr = static_cast<float>(-hyper.lr);
  constants.nesterov = hyper.nesterov;
  constants.starts = step == 1;
  return RuleConstants(constants);
}

template <bool kMomentum>
void step_element(const RuleConstants& constants, RuleElement& element, float g) {
  const SgdConstants s = constants.as<SgdConstants>();
  float b = element.exp_avg;
  if (s.weight_decay != 0.0f) g = std::fma(element.weight, s.weight_decay, g);
  if (kMomentum && s.momentum != 0.0f) {
    b = s.starts ? g : std::fma(s.grad_weight, g, s.momentum * b);
    g = s.nesterov ? std::fma(s.momentum, b, g) : b;
  }
  element.weight = std::fma(s.minus_lr, g, element.weight);
  element.exp_avg = b;
}

}  // namespace

OptimizerRule sgd_rule() {
  return {.moments = {.exp_avg = false, .exp_avg_sq = false},
          .constants = sgd_constants,
          .step_element = step_element<false>,
          .step_tile = [](const RuleConstants& constants, const RuleTile& tile) {
            HWY_DYNAMIC_DISPATCH(step_plain)(constants, tile);
          }};
}

OptimizerRule momentum_sgd_rule() {
  return {.moments = {.exp_avg = true, .exp_avg_sq = false},
          .constants = sgd_constants,
          .step_element = step_element<true>,
          .step_tile = [](const RuleConstants& constants, const RuleTile& tile) {
            HWY_DYNAMIC_DISPATCH(step_momentum)(constants, tile);
          }};
}

}  // namespace zoffload
#endif  // HWY_ONCE
