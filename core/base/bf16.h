// bfloat16 as its 16 bits: the upper half of a float. Rounding is to nearest, ties to even, as
// torch's; a NaN stays a (quiet) NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace zoffload {

constexpr float float_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace zoffload
