// What the kernels share: loads and stores of fp32 and bf16 as vectors of float, a fused
// multiply-add that is fused on every target, and the canonical NaN. Included once per target, as
// Highway's own -inl headers are.
#if defined(ZOFFLOAD_OPTIM_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZOFFLOAD_OPTIM_SIMD_INL_H_
#undef ZOFFLOAD_OPTIM_SIMD_INL_H_
#else
#define ZOFFLOAD_OPTIM_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "optim/canonical_nan.h"

#if HWY_ARCH_ARM_V7
#error "32-bit Arm flushes denormals and approximates division: it cannot give the same bits"
#endif

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a * b + c, rounded once. Where the target has no such instruction, Highway's MulAdd rounds twice.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V fused_multiply_add([[maybe_unused]] D d, V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float x[hn::MaxLanes(D())];
  HWY_ALIGN float y[hn::MaxLanes(D())];
  HWY_ALIGN float z[hn::MaxLanes(D())];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (size_t i = 0; i < hn::Lanes(d); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V with_canonical_nan(D d, V value) {
  const V nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kCanonicalNanBits));
  return hn::IfThenElse(hn::Eq(value, value), value, nan);
}

template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const uint16_t* from) {
  const auto bits =
      hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(hn::Rebind<uint16_t, D>(), from));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D>
HWY_INLINE void store_float(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
}

// bf16_from_float() of core/base/bf16.h, lane by lane.
template <class D>
HWY_INLINE void store_float(D d, hn::Vec<D> value, uint16_t* to) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto high = hn::ShiftRight<16>(bits);
  const auto bias = hn::Add(hn::And(high, hn::Set(du, 1u)), hn::Set(du, 0x7fffu));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
  const auto quiet_nan = hn::Or(high, hn::Set(du, 0x0040u));
  const auto chosen =
      hn::IfThenElse(hn::Eq(value, value), hn::BitCast(d, rounded), hn::BitCast(d, quiet_nan));
  // Signed, since that is the narrowing every Highway has; it saturates, but 16 bits always fit.
  const auto narrow =
      hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), chosen));
  hn::StoreU(narrow, hn::Rebind<uint16_t, D>(), to);
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#endif  // the per-target include guard
