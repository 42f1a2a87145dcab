#include "optim/adam.h"

#include <cmath>

#include "core/base/check.h"

namespace zoffload {

AdamScalars adam_scalars(const Hyper& hyper, float grad_scale, uint64_t step) {
  const double power = static_cast<double>(step);
  const double bias_correction1 = 1.0 - std::pow(hyper.beta1, power);
  const double bias_correction2 = 1.0 - std::pow(hyper.beta2, power);
  const bool lerp_from_grad = !(1.0 - hyper.beta1 < 0.5);

  AdamScalars scalars;
  scalars.grad_scale = grad_scale;
  scalars.decay_factor = static_cast<float>(1.0 - hyper.lr * hyper.weight_decay);
  scalars.weight_decay = static_cast<float>(hyper.weight_decay);
  scalars.exp_avg_weight = static_cast<float>(lerp_from_grad ? -hyper.beta1 : 1.0 - hyper.beta1);
  scalars.lerp_from_grad = lerp_from_grad;
  scalars.beta2 = static_cast<float>(hyper.beta2);
  scalars.grad_sq_weight = static_cast<float>(1.0 - hyper.beta2);
  scalars.bias_correction2_sqrt = static_cast<float>(std::sqrt(bias_correction2));
  scalars.eps = static_cast<float>(hyper.eps);
  scalars.step_size = static_cast<float>(hyper.lr / bias_correction1);
  return scalars;
}

void Adam::update(const UpdateView& view, const Hyper& hyper, float grad_scale,
                  uint64_t step) const {
  const size_t numel = view.master.size();
  ZO_CHECK(step >= 1);
  ZO_CHECK(view.moments == MomentFormat::kFloat32);
  ZO_CHECK(view.residual.empty());
  ZO_CHECK(view.exp_avg.values.size() == numel * sizeof(float));
  ZO_CHECK(view.exp_avg_sq.values.size() == numel * sizeof(float));
  ZO_CHECK(view.param.empty() || view.param.size() == numel);
  ZO_CHECK(view.grad.size() == numel * dtype_bytes(view.grad_dtype));
  do_update(view, adam_scalars(hyper, grad_scale, step));
}

}  // namespace zoffload
