// The two implementations of GradientMath: the vectorised one, and the oracle one element at a
// time. Bit for bit equal. A NaN that accumulate() or sum_of_squares() computes is the canonical
// one; assign() keeps a NaN's payload, as core/base/bf16.h does.
#pragma once

#include "core/ports/gradient_math.h"

namespace zoffload {

class HighwayGradientMath final : public GradientMath {
 public:
  void assign(ConstHostSpan from, DType from_dtype, HostSpan to, DType to_dtype) const override;
  void accumulate(ConstHostSpan from, DType from_dtype, HostSpan to, DType to_dtype) const override;
  double sum_of_squares(ConstHostSpan values, DType dtype) const override;
};

class ScalarGradientMath final : public GradientMath {
 public:
  void assign(ConstHostSpan from, DType from_dtype, HostSpan to, DType to_dtype) const override;
  void accumulate(ConstHostSpan from, DType from_dtype, HostSpan to, DType to_dtype) const override;
  double sum_of_squares(ConstHostSpan values, DType dtype) const override;
};

}  // namespace zoffload
