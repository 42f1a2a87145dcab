#include <array>
#include <cmath>
#include <limits>

#include "core/base/bf16.h"
#include "core/base/check.h"
#include "optim/canonical_nan.h"
#include "optim/gradient_math.h"

namespace zoffload {
namespace {

float get(ConstHostSpan from, DType dtype, size_t i) {
  if (dtype == DType::kFloat32) return elements<float>(from)[i];
  return float_from_bf16(elements<uint16_t>(from)[i]);
}

void set(HostSpan to, DType dtype, size_t i, float value) {
  if (dtype == DType::kFloat32) {
    elements<float>(to)[i] = value;
  } else {
    elements<uint16_t>(to)[i] = bf16_from_float(value);
  }
}

size_t numel_of(ConstHostSpan bytes, DType dtype) { return bytes.size() / dtype_bytes(dtype); }

}  // namespace

void ScalarGradientMath::assign(ConstHostSpan from, DType from_dtype, HostSpan to,
                                DType to_dtype) const {
  ZO_CHECK(numel_of(from, from_dtype) == numel_of(to, to_dtype));
  for (size_t i = 0; i < numel_of(to, to_dtype); ++i) {
    if (from_dtype == DType::kBFloat16 && to_dtype == DType::kBFloat16) {
      elements<uint16_t>(to)[i] = elements<uint16_t>(from)[i];  // a copy keeps signalling NaNs too
    } else {
      set(to, to_dtype, i, get(from, from_dtype, i));
    }
  }
}

void ScalarGradientMath::accumulate(ConstHostSpan from, DType from_dtype, HostSpan to,
                                    DType to_dtype) const {
  ZO_CHECK(numel_of(from, from_dtype) == numel_of(to, to_dtype));
  for (size_t i = 0; i < numel_of(to, to_dtype); ++i) {
    set(to, to_dtype, i, canonical_nan(get(to, to_dtype, i) + get(from, from_dtype, i)));
  }
}

double ScalarGradientMath::sum_of_squares(ConstHostSpan values, DType dtype) const {
  std::array<double, 16> lanes{};
  for (size_t i = 0; i < numel_of(values, dtype); ++i) {
    const double value = get(values, dtype, i);
    lanes[i % 16] += value * value;
  }
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  }
  return std::isnan(lanes[0]) ? std::numeric_limits<double>::quiet_NaN() : lanes[0];
}

}  // namespace zoffload
