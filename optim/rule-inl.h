// The loop over a tile that every vectorised rule shares. Included once per target, as Highway's
// own -inl headers are.
#if defined(ZOFFLOAD_OPTIM_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZOFFLOAD_OPTIM_RULE_INL_H_
#undef ZOFFLOAD_OPTIM_RULE_INL_H_
#else
#define ZOFFLOAD_OPTIM_RULE_INL_H_
#endif

#include "core/base/span.h"
#include "optim/rule.h"
#include "optim/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

template <bool kKept, class D>
HWY_INLINE hn::Vec<D> load_moment(D d, const float* from, size_t i) {
  if constexpr (kKept) return hn::LoadU(d, from + i);
  return hn::Zero(d);
}

// Returns what is NaN wherever a result is, and seldom elsewhere (Inf - Inf).
template <class Rule, class D, typename Grad>
HWY_INLINE hn::Vec<D> step_vector(D d, const Rule& rule, const RuleTile& tile, const Grad* grad,
                                  size_t i) {
  hn::Vec<D> weight = hn::LoadU(d, tile.weight + i);
  hn::Vec<D> exp_avg = load_moment<Rule::kMoments.exp_avg>(d, tile.exp_avg, i);
  hn::Vec<D> exp_avg_sq = load_moment<Rule::kMoments.exp_avg_sq>(d, tile.exp_avg_sq, i);
  const hn::Vec<D> scaled = hn::Mul(load_float(d, grad + i), hn::Set(d, tile.grad_scale));
  rule.step(d, weight, exp_avg, exp_avg_sq, scaled);
  hn::StoreU(weight, d, tile.weight + i);
  hn::Vec<D> sum = weight;
  if constexpr (Rule::kMoments.exp_avg) {
    hn::StoreU(exp_avg, d, tile.exp_avg + i);
    sum = hn::Add(sum, exp_avg);
  }
  if constexpr (Rule::kMoments.exp_avg_sq) {
    hn::StoreU(exp_avg_sq, d, tile.exp_avg_sq + i);
    sum = hn::Add(sum, exp_avg_sq);
  }
  return sum;
}

inline void make_nans_canonical(float* values, size_t numel) {
  for (size_t i = 0; values != nullptr && i < numel; ++i) values[i] = canonical_nan(values[i]);
}

// Full vectors, then the rest as vectors of one lane: the same operations, so that no bit depends
// on how a parameter was cut. NaNs are seldom: looked for once a tile, in the sum of all results.
template <class Rule, typename Grad>
void step_vectors(const Rule& shared_rule, const RuleTile& shared_tile, const Grad* grad) {
  const Rule rule = shared_rule;      // copies, which the stores cannot alias:
  const RuleTile tile = shared_tile;  // so they stay in registers
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(full);
  auto sum = hn::Zero(full);
  auto rest = hn::Zero(one);
  size_t i = 0;
  for (; i + lanes <= tile.numel; i += lanes) {
    sum = hn::Add(sum, step_vector(full, rule, tile, grad, i));
  }
  for (; i < tile.numel; ++i) rest = hn::Add(rest, step_vector(one, rule, tile, grad, i));
  if (hn::AllTrue(full, hn::Eq(sum, sum)) && hn::AllTrue(one, hn::Eq(rest, rest))) return;
  make_nans_canonical(tile.weight, tile.numel);
  if (Rule::kMoments.exp_avg) make_nans_canonical(tile.exp_avg, tile.numel);
  if (Rule::kMoments.exp_avg_sq) make_nans_canonical(tile.exp_avg_sq, tile.numel);
}

// `Rule` has kMoments, a MomentSet, and step(d, weight, exp_avg, exp_avg_sq, grad) on vectors, all
// by reference but the gradient; a moment that it does not keep comes as zero and is dropped.
template <class Rule>
void step_tile(const Rule& rule, const RuleTile& tile) {
  if (tile.grad_dtype == DType::kFloat32) {
    step_vectors(rule, tile, elements<float>(tile.grad).data());
  } else {
    step_vectors(rule, tile, elements<uint16_t>(tile.grad).data());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#endif  // the per-target include guard
