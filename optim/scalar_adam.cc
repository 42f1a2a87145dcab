#include "optim/scalar_adam.h"

#include <cmath>

#include "core/base/bf16.h"
#include "core/base/span.h"
#include "optim/canonical_nan.h"

namespace zoffload {
namespace {

struct Element {
  float weight;
  float exp_avg;
  float exp_avg_sq;
};

Element step_element(Element e, float grad, WeightDecay decay, const AdamScalars& s) {
  float g = grad * s.grad_scale;
  float w = e.weight;
  if (decay == WeightDecay::kDecoupled) {
    w = w * s.decay_factor;
  } else if (s.weight_decay != 0.0f) {
    g = std::fma(w, s.weight_decay, g);
  }
  const float m = std::fma(s.exp_avg_weight, g - e.exp_avg, s.lerp_from_grad ? g : e.exp_avg);
  const float v = std::fma(s.grad_sq_weight * g, g, s.beta2 * e.exp_avg_sq);
  const float denom = std::sqrt(v) / s.bias_correction2_sqrt + s.eps;
  w = w - (s.step_size * m) / denom;
  return {canonical_nan(w), canonical_nan(m), canonical_nan(v)};
}

float grad_at(const UpdateView& view, size_t i) {
  if (view.grad_dtype == DType::kFloat32) return elements<float>(view.grad)[i];
  return float_from_bf16(elements<uint16_t>(view.grad)[i]);
}

}  // namespace

void ScalarAdam::do_update(const UpdateView& view, const AdamScalars& scalars) const {
  const auto exp_avg = elements<float>(view.exp_avg.values);
  const auto exp_avg_sq = elements<float>(view.exp_avg_sq.values);
  for (size_t i = 0; i < view.numel(); ++i) {
    const Element before{view.master[i], exp_avg[i], exp_avg_sq[i]};
    const Element after = step_element(before, grad_at(view, i), decay(), scalars);
    view.master[i] = after.weight;
    exp_avg[i] = after.exp_avg;
    exp_avg_sq[i] = after.exp_avg_sq;
    if (!view.param.empty()) view.param[i] = bf16_from_float(after.weight);
  }
}

}  // namespace zoffload
