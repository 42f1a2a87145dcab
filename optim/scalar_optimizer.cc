#include <algorithm>
#include <array>

#include "core/base/bf16.h"
#include "optim/canonical_nan.h"
#include "optim/rule_optimizer.h"
#include "optim/scalar_formats.h"
#include "optim/stochastic_rounding.h"

namespace zoffload {
namespace {

float grad_at(const UpdateView& view, size_t i) {
  if (view.grad_dtype == DType::kFloat32) return elements<float>(view.grad)[i];
  return float_from_bf16(elements<uint16_t>(view.grad)[i]);
}

float weight_at(const UpdateView& view, size_t i) {
  if (view.residual.empty()) return view.master[i];
  return join_bits(view.param[i], view.residual[i]);
}

void put_weight(const UpdateView& view, size_t i, float weight) {
  if (!view.residual.empty()) {
    const SplitBits halves = split_bits(weight);
    view.param[i] = halves.param;
    view.residual[i] = halves.residual;
    return;
  }
  view.master[i] = weight;
  if (!view.param.empty()) view.param[i] = bf16_from_float(weight);
}

}  // namespace

// Block by block, because a block of int8 is encoded as one.
void ScalarOptimizer::do_update(const UpdateView& view, const Call& call) const {
  const MomentSet kept = moments();
  std::array<float, kMomentBlock> exp_avg{};
  std::array<float, kMomentBlock> exp_avg_sq{};
  std::array<uint32_t, kMomentBlock> random;
  for (size_t block = 0; block < view.numel(); block += kMomentBlock) {
    const size_t numel = std::min<size_t>(kMomentBlock, view.numel() - block);
    for (size_t k = 0; k < numel; ++k) {
      const size_t i = block + k;
      const auto value = [&](bool is_kept, Moment moment, const MomentView& from) {
        return is_kept ? decode_element(moment, view.moments, from, i) : 0.0f;
      };
      RuleElement element{weight_at(view, i), value(kept.exp_avg, Moment::kExpAvg, view.exp_avg),
                          value(kept.exp_avg_sq, Moment::kExpAvgSq, view.exp_avg_sq)};
      rule().step_element(call.constants, element, grad_at(view, i) * call.grad_scale);
      put_weight(view, i, canonical_nan(element.weight));
      exp_avg[k] = canonical_nan(element.exp_avg);
      exp_avg_sq[k] = canonical_nan(element.exp_avg_sq);
      const uint64_t index = view.first + i;
      random[k] = random_bits(tile_key(view.seed, call.step, index), index);
    }
    const auto encode = [&](Moment moment, const float* from, const MomentView& to) {
      encode_elements(moment, view.moments, from, numel, {random.data()}, to, block);
    };
    if (kept.exp_avg) encode(Moment::kExpAvg, exp_avg.data(), view.exp_avg);
    if (kept.exp_avg_sq) encode(Moment::kExpAvgSq, exp_avg_sq.data(), view.exp_avg_sq);
  }
}

}  // namespace zoffload
