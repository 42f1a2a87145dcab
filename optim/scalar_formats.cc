#include "optim/scalar_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/bf16.h"
#include "optim/canonical_nan.h"
#include "optim/int8_block.h"

namespace zoffload {
namespace {

// The 16 bits that are exp_avg's, or exp_avg_sq's.
uint32_t half_of(Moment moment, uint32_t random) {
  return moment == Moment::kExpAvg ? random & 0xffffu : random >> 16;
}

// NaN is canonical and Inf stays; what is above the largest bf16 may become Inf.
uint16_t stochastic_bf16(float value, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(canonical_nan(value));
  return static_cast<uint16_t>((bits + random) >> 16);
}

int32_t encode_code(Moment moment, float value, const BlockScale& block, uint32_t fraction) {
  const bool root = moment == Moment::kExpAvgSq;
  const float offset = std::bit_cast<float>(code_offset_bits(moment) | fraction);
  const float sum = std::fma(root ? std::sqrt(value) : value, block.inverse, offset);
  const int32_t code =
      static_cast<int32_t>(std::bit_cast<uint32_t>(sum) >> kCodeFractionBits) - code_zero(moment);
  if (root) return std::clamp(code, value > 0.0f ? 1 : 0, kExpAvgSqCodeMax);
  return std::clamp(code, -kExpAvgCodeMax, kExpAvgCodeMax);
}

void encode_block(Moment moment, const float* from, size_t numel, Rounding rounding, uint8_t* codes,
                  float* scale) {
  uint32_t largest = 0;
  for (size_t i = 0; i < numel; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(from[i] + 0.0f);  // -0 is 0
    largest = std::max(largest, moment == Moment::kExpAvg ? bits & 0x7fffffffu : bits);
  }
  const BlockScale block = block_scale(moment, largest);
  *scale = block.scale;
  for (size_t i = 0; i < numel; ++i) {
    uint32_t fraction = kCodeHalf;
    if (rounding.random != nullptr) {
      fraction = (half_of(moment, rounding.random[i]) & kCodeRandomMask) | kCodeRandomSet;
    }
    const int32_t code = block.finite() ? encode_code(moment, from[i], block, fraction) : 0;
    codes[i] = static_cast<uint8_t>(code);  // exp_avg's as its int8_t
  }
}

}  // namespace

float join_bits(uint16_t param, uint16_t residual) {
  const uint32_t high = (static_cast<uint32_t>(param) - (residual >> 15)) << 16;
  return std::bit_cast<float>(high | residual);
}

SplitBits split_bits(float master) {
  const uint32_t bits = std::bit_cast<uint32_t>(master);
  return {static_cast<uint16_t>((bits + 0x8000u) >> 16), static_cast<uint16_t>(bits)};
}

float decode_element(Moment moment, MomentFormat format, const MomentView& from, size_t i) {
  switch (format) {
    case MomentFormat::kFloat32: return elements<float>(from.values)[i];
    case MomentFormat::kBFloat16: return float_from_bf16(elements<uint16_t>(from.values)[i]);
    case MomentFormat::kInt8: break;
  }
  const uint8_t code = static_cast<uint8_t>(from.values[i]);
  const float scale = canonical_nan(from.scales[i / kMomentBlock]);
  if (moment == Moment::kExpAvg) return static_cast<float>(static_cast<int8_t>(code)) * scale;
  const float root = static_cast<float>(code) * scale;
  return root * root;
}

void encode_elements(Moment moment, MomentFormat format, const float* from, size_t numel,
                     Rounding rounding, const MomentView& to, size_t i) {
  if (format == MomentFormat::kInt8) {
    encode_block(moment, from, numel, rounding,
                 elements<uint8_t>(to.values).subspan(i, numel).data(),
                 &to.scales[i / kMomentBlock]);
    return;
  }
  for (size_t k = 0; k < numel; ++k) {
    if (format == MomentFormat::kFloat32) {
      elements<float>(to.values)[i + k] = from[k];
    } else if (rounding.random == nullptr) {
      elements<uint16_t>(to.values)[i + k] = bf16_from_float(canonical_nan(from[k]));
    } else {
      elements<uint16_t>(to.values)[i + k] =
          stochastic_bf16(from[k], half_of(moment, rounding.random[k]));
    }
  }
}

}  // namespace zoffload
