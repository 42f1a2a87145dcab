// int8 moments: a block of kMomentBlock elements shares one fp32 scale.
//
//   exp_avg     value = code * scale, codes -127 to 127, scale = largest magnitude / 127
//   exp_avg_sq  root = code * scale, value = root * root, codes 0 to 255 (as uint8_t),
//               scale = largest root / 255
//
// Errors. exp_avg is off by at most scale / 2 when rounded to nearest, by less than scale when
// rounded stochastically; so is the root of exp_avg_sq, except that a value above zero never gets
// code 0. The largest value of a block always has the largest code and is off by 2^-19 of itself at
// most. A block whose exp_avg never reaches 127 * 2^-126 becomes zero, and a scale of exp_avg_sq is
// at least 2^-70. A block that holds NaN or Inf, or an exp_avg_sq below zero, has a NaN as its
// scale: all of it decodes to NaN.
//
// Scales have 22 significant bits, and the largest code is always reached, so that encoding what
// was decoded gives the same scale and the same codes.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/ports/optimizer.h"
#include "optim/canonical_nan.h"

namespace zoffload {

struct BlockScale {
  float scale;
  float inverse;  // what values are multiplied with; finite
  bool finite() const { return scale == scale; }
};

// A value times the inverse is added to kCodeOffset + u, u in (0, 1), which brings it into [256,
// 512): the bits of such a float are its integer part above 15 bits of fraction. What `u` is made
// of: 15 bits, of which the last two are 10, so that u stays 2^-14 away from 0 and from 1. A
// largest value whose quotient is 2^-22 of itself too small still gets the largest code.
inline constexpr uint32_t kCodeFractionBits = 15;
inline constexpr uint32_t kCodeRandomMask = 0x7ffcu;
inline constexpr uint32_t kCodeRandomSet = 0x0002u;
inline constexpr uint32_t kCodeHalf = 0x4000u;  // u = 0.5: rounds to nearest

constexpr float code_offset(Moment moment) { return moment == Moment::kExpAvg ? 384.0f : 256.0f; }
constexpr uint32_t code_offset_bits(Moment moment) {
  return std::bit_cast<uint32_t>(code_offset(moment));
}
// The upper bits of a float in [256, 512) whose code is 0.
constexpr int32_t code_zero(Moment moment) {
  return static_cast<int32_t>(code_offset_bits(moment) >> kCodeFractionBits);
}

inline constexpr int32_t kExpAvgCodeMax = 127;
inline constexpr int32_t kExpAvgSqCodeMax = 255;

// Of a block whose largest magnitude (exp_avg) or largest value (exp_avg_sq) has these bits.
// Magnitudes compare as their bits do, NaN and below zero as the largest.
inline BlockScale block_scale(Moment moment, uint32_t largest_bits) {
  constexpr uint32_t kInfBits = 0x7f800000u;
  if (largest_bits >= kInfBits) return {std::bit_cast<float>(kCanonicalNanBits), 0.0f};
  const float largest = std::bit_cast<float>(largest_bits);
  const bool root = moment == Moment::kExpAvgSq;
  // Below the first all is zero, below the second exp_avg_sq's codes do not reach the largest one.
  // The upper limits keep the largest value, times its rounding, from overflow.
  constexpr float kTiny = std::numeric_limits<float>::min();
  constexpr float kRootMin = 0x1p-70f;
  constexpr float kMax = 0x1.fffff0p127f / kExpAvgCodeMax;
  constexpr float kRootMax = 0x1.fffff0p63f / kExpAvgSqCodeMax;

  float scale = root ? std::sqrt(largest) / kExpAvgSqCodeMax : largest / kExpAvgCodeMax;
  if (root ? largest == 0.0f : scale < kTiny) return {0.0f, 0.0f};
  scale = root ? std::clamp(scale, kRootMin, kRootMax) : std::min(scale, kMax);
  // Decoding and dividing again gives the scale but for its last bit: rounded to every fourth.
  scale = std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 1u) & ~3u);
  return {scale, 1.0f / scale};
}

}  // namespace zoffload
