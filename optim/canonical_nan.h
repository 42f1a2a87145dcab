// One NaN. Which sign and payload a NaN result carries differs between instruction sets and with
// the order of operands that a compiler chose, so arithmetic that promises the same bits everywhere
// writes every NaN as this one.
#pragma once

#include <bit>
#include <cstdint>

namespace zoffload {

inline constexpr uint32_t kCanonicalNanBits = 0x7fc00000u;

constexpr float canonical_nan(float value) {
  return value == value ? value : std::bit_cast<float>(kCanonicalNanBits);
}

}  // namespace zoffload
