#include "optim/gradient_math.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/check.h"
#include "optim/simd_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/gradient_math.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include "optim/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

template <class D, typename From, typename To>
HWY_INLINE void accumulate_vector(D d, const From* from, To* to) {
  const auto sum = hn::Add(load_float(d, to), load_float(d, from));
  store_float(d, with_canonical_nan(d, sum), to);
}

template <typename From, typename To>
void accumulate_all(const From* from, To* to, size_t numel) {
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(full);
  size_t i = 0;
  for (; i + lanes <= numel; i += lanes) accumulate_vector(full, from + i, to + i);
  for (; i < numel; ++i) accumulate_vector(one, from + i, to + i);
}

template <typename From>
void accumulate_from(const From* from, HostSpan to, DType to_dtype, size_t numel) {
  if (to_dtype == DType::kFloat32) {
    accumulate_all(from, elements<float>(to).data(), numel);
  } else {
    accumulate_all(from, elements<uint16_t>(to).data(), numel);
  }
}

void accumulate_any(ConstHostSpan from, DType from_dtype, HostSpan to, DType to_dtype,
                    size_t numel) {
  if (from_dtype == DType::kFloat32) {
    accumulate_from(elements<float>(from).data(), to, to_dtype, numel);
  } else {
    accumulate_from(elements<uint16_t>(from).data(), to, to_dtype, numel);
  }
}

template <typename From, typename To>
void convert_all(const From* from, To* to, size_t numel) {
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 1> one;
  const size_t lanes = hn::Lanes(full);
  size_t i = 0;
  for (; i + lanes <= numel; i += lanes) store_float(full, load_float(full, from + i), to + i);
  for (; i < numel; ++i) store_float(one, load_float(one, from + i), to + i);
}

void widen(const uint16_t* from, float* to, size_t numel) { convert_all(from, to, numel); }
void narrow(const float* from, uint16_t* to, size_t numel) { convert_all(from, to, numel); }

// The square of a float is exact in double, so that fused or not makes no difference here.
template <class D, typename T>
HWY_INLINE void add_squares(D d, const T* from, double* sums) {
  const auto value = hn::PromoteTo(d, load_float(hn::Rebind<float, D>(), from));
  hn::StoreU(hn::MulAdd(value, value, hn::LoadU(d, sums)), d, sums);
}

// Element i into sums[i % 16]. The constant bound lets the compiler keep all 16 sums in registers.
template <typename T>
void sum_squares_all(const T* values, size_t numel, double* to) {
  const hn::CappedTag<double, 16> full;
  const hn::CappedTag<double, 1> one;
  double sums[16] = {};
  size_t i = 0;
  for (; i + 16 <= numel; i += 16) {
    for (size_t k = 0; k < 16; k += hn::MaxLanes(full)) add_squares(full, values + i + k, sums + k);
  }
  for (size_t k = 0; i + k < numel; ++k) add_squares(one, values + i + k, sums + k);
  std::memcpy(to, sums, sizeof sums);
}

void sum_squares_any(ConstHostSpan values, DType dtype, size_t numel, double* to) {
  if (dtype == DType::kFloat32) {
    sum_squares_all(elements<float>(values).data(), numel, to);
  } else {
    sum_squares_all(elements<uint16_t>(values).data(), numel, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zoffload {

HWY_EXPORT(accumulate_any);
HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(sum_squares_any);

void HighwayGradientMath::assign(ConstHostSpan from, DType from_dtype, HostSpan to,
                                 DType to_dtype) const {
  const size_t numel = from.size() / dtype_bytes(from_dtype);
  ZO_CHECK(numel == to.size() / dtype_bytes(to_dtype));
  if (numel == 0) return;  // memcpy wants addresses even for nothing
  if (from_dtype == to_dtype) {
    std::memcpy(to.data(), from.data(), to.size());
  } else if (from_dtype == DType::kBFloat16) {
    HWY_DYNAMIC_DISPATCH(widen)(elements<uint16_t>(from).data(), elements<float>(to).data(), numel);
  } else {
    HWY_DYNAMIC_DISPATCH(narrow)
    (elements<float>(from).data(), elements<uint16_t>(to).data(), numel);
  }
}

void HighwayGradientMath::accumulate(ConstHostSpan from, DType from_dtype, HostSpan to,
                                     DType to_dtype) const {
  const size_t numel = from.size() / dtype_bytes(from_dtype);
  ZO_CHECK(numel == to.size() / dtype_bytes(to_dtype));
  HWY_DYNAMIC_DISPATCH(accumulate_any)(from, from_dtype, to, to_dtype, numel);
}

double HighwayGradientMath::sum_of_squares(ConstHostSpan values, DType dtype) const {
  double sums[16];
  HWY_DYNAMIC_DISPATCH(sum_squares_any)(values, dtype, values.size() / dtype_bytes(dtype), sums);
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return std::isnan(sums[0]) ? std::numeric_limits<double>::quiet_NaN() : sums[0];
}

}  // namespace zoffload
#endif  // HWY_ONCE
