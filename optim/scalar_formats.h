// The state formats one element, or one block of int8, at a time: oracle and documentation of
// tile_formats.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ports/optimizer.h"

namespace zoffload {

// bits = (hi - (lo >> 15)) << 16 | lo.
float join_bits(uint16_t param, uint16_t residual);

struct SplitBits {
  uint16_t param;     // half up in magnitude
  uint16_t residual;  // the lower half of the bits
};
SplitBits split_bits(float master);

// Of element i of a moment.
float decode_element(Moment moment, MomentFormat format, const MomentView& from, size_t i);

// What rounds a moment up or down: to nearest (bf16: ties to even, int8: half up), or by 16 random
// bits for each element.
struct Rounding {
  const uint32_t* random = nullptr;  // of each element to be encoded; null is to nearest
};

// Elements i to i + numel of a moment. REQUIRES: in int8 they are one block, the last may be short.
void encode_elements(Moment moment, MomentFormat format, const float* from, size_t numel,
                     Rounding rounding, const MomentView& to, size_t i);

}  // namespace zoffload
