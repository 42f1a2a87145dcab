#include "optim/rule_optimizer.h"

#include "core/base/check.h"
#include "optim/moment_view.h"

namespace zoffload {

void RuleOptimizer::update(const UpdateView& view, const Hyper& hyper, float grad_scale,
                           uint64_t step) const {
  const size_t numel = view.numel();
  const MomentSet kept = moments();
  ZO_CHECK(step >= 1);
  ZO_CHECK(view.master.empty() || view.residual.empty());
  ZO_CHECK(view.residual.empty() || view.param.size() == numel);
  ZO_CHECK(view.param.empty() || view.param.size() == numel);
  ZO_CHECK(view.grad.size() == numel * dtype_bytes(view.grad_dtype));
  ZO_CHECK(view.moments != MomentFormat::kInt8 || view.first % kMomentBlock == 0);
  check_moment(view.exp_avg, view.moments, kept.exp_avg ? numel : 0);
  check_moment(view.exp_avg_sq, view.moments, kept.exp_avg_sq ? numel : 0);
  do_update(view, {rule_.constants(hyper, step), grad_scale, step});
}

}  // namespace zoffload
