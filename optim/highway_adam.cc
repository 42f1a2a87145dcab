#include "optim/highway_adam.h"

#include "core/base/span.h"
#include "optim/simd_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/highway_adam.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include "optim/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

// The elements of one call, from one index on.
template <typename Grad>
struct Cursor {
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  uint16_t* param;  // unused if the model has no bf16 parameters
  const Grad* grad;
};

// ScalarAdam's step_element() on the vector at element i, operation by operation.
template <WeightDecay kDecay, bool kHasParam, class D, typename Grad>
HWY_INLINE void step_vector(D d, const AdamScalars& s, const Cursor<Grad>& at, size_t i) {
  using V = hn::Vec<D>;
  V w = hn::LoadU(d, at.master + i);
  V m = hn::LoadU(d, at.exp_avg + i);
  V v = hn::LoadU(d, at.exp_avg_sq + i);
  V g = hn::Mul(load_float(d, at.grad + i), hn::Set(d, s.grad_scale));

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

  w = with_canonical_nan(d, w);
  hn::StoreU(w, d, at.master + i);
  hn::StoreU(with_canonical_nan(d, m), d, at.exp_avg + i);
  hn::StoreU(with_canonical_nan(d, v), d, at.exp_avg_sq + i);
  if constexpr (kHasParam) store_float(d, w, at.param + i);
}

// Full vectors, then the rest as vectors of one lane: the same operations, so that no bit depends
// on how a parameter was cut.
template <WeightDecay kDecay, bool kHasParam, typename Grad>
void step_all(const Cursor<Grad>& from, size_t numel, const AdamScalars& scalars) {
  const AdamScalars s = scalars;  // copies, which the stores below cannot alias:
  const Cursor<Grad> at = from;   // so they stay in registers
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(full);
  size_t i = 0;
  for (; i + lanes <= numel; i += lanes) step_vector<kDecay, kHasParam>(full, s, at, i);
  for (; i < numel; ++i) step_vector<kDecay, kHasParam>(one, s, at, i);
}

template <WeightDecay kDecay, typename Grad>
void update_from(const Grad* grad, const UpdateView& view, const AdamScalars& scalars) {
  const Cursor<Grad> at{view.master.data(), elements<float>(view.exp_avg.values).data(),
                        elements<float>(view.exp_avg_sq.values).data(), view.param.data(), grad};
  if (view.param.empty()) {
    step_all<kDecay, false>(at, view.master.size(), scalars);
  } else {
    step_all<kDecay, true>(at, view.master.size(), scalars);
  }
}

template <WeightDecay kDecay>
void update_any(const UpdateView& view, const AdamScalars& scalars) {
  if (view.grad_dtype == DType::kFloat32) {
    update_from<kDecay>(elements<float>(view.grad).data(), view, scalars);
  } else {
    update_from<kDecay>(elements<uint16_t>(view.grad).data(), view, scalars);
  }
}

void update_adam(const UpdateView& view, const AdamScalars& scalars) {
  update_any<WeightDecay::kL2>(view, scalars);
}
void update_adamw(const UpdateView& view, const AdamScalars& scalars) {
  update_any<WeightDecay::kDecoupled>(view, scalars);
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zoffload {

HWY_EXPORT(update_adam);
HWY_EXPORT(update_adamw);

void HighwayAdam::do_update(const UpdateView& view, const AdamScalars& scalars) const {
  if (decay() == WeightDecay::kDecoupled) {
    HWY_DYNAMIC_DISPATCH(update_adamw)(view, scalars);
  } else {
    HWY_DYNAMIC_DISPATCH(update_adam)(view, scalars);
  }
}

}  // namespace zoffload
#endif  // HWY_ONCE
