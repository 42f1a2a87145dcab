// The arithmetic on gradients before the update: accumulation over micro-steps, and the sum of
// squares for the global norm. Pure functions over spans with the same bits on every instruction
// set; an interface, like Optimizer, so that the vectorised one and the scalar oracle are
// interchangeable.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/span.h"
#include "core/base/types.h"

namespace zoffload {

class GradientMath {
 public:
  virtual ~GradientMath() = default;

  // to = from, converted (bf16 to fp32 is exact, fp32 to bf16 rounds to nearest even). Same numel.
  virtual void assign(ConstHostSpan from, DType from_dtype, HostSpan to, DType to_dtype) const = 0;

  // to = round(fp32(to) + fp32(from)): added in fp32, rounded once to to_dtype. Same numel.
  virtual void accumulate(ConstHostSpan from, DType from_dtype, HostSpan to,
                          DType to_dtype) const = 0;

  // The sum of the squares in double. Element i is squared in double and added to lane i % 16; the
  // 16 lanes are then added in a fixed tree (halves: lane k += lane k + 8, then + 4, + 2, + 1). A
  // NaN or Inf element makes the result not finite, and nothing else does (the square of the
  // largest float is finite in double).
  virtual double sum_of_squares(ConstHostSpan values, DType dtype) const = 0;
};

}  // namespace zoffload
