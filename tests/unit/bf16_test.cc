#include "core/base/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/sim/random.h"

namespace zoffload {
namespace {

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

// Goal: widening and rounding back change nothing. Method: all 65536 values; a NaN becomes quiet.
TEST(Bf16, EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float wide = float_from_bf16(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<uint32_t>(wide), bits << 16);
    const uint32_t expected = std::isnan(wide) ? bits | 0x40u : bits;
    EXPECT_EQ(bf16_from_float(wide), expected);
  }
}

// Goal: to nearest, ties to even. Method: values just below, at and above the middle of two.
TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(bf16_from_float(from_bits(0x3f807fff)), 0x3f80);
  EXPECT_EQ(bf16_from_float(from_bits(0x3f808000)), 0x3f80);  // a tie: 0x3f80 is even
  EXPECT_EQ(bf16_from_float(from_bits(0x3f808001)), 0x3f81);
  EXPECT_EQ(bf16_from_float(from_bits(0x3f818000)), 0x3f82);  // a tie: 0x3f81 is odd
  EXPECT_EQ(bf16_from_float(from_bits(0xbf818000)), 0xbf82);
  EXPECT_EQ(bf16_from_float(from_bits(0x00008000)), 0x0000);  // denormals round alike
  EXPECT_EQ(bf16_from_float(from_bits(0x00018000)), 0x0002);
}

// Goal: no neighbour is nearer. Method: distances, in double, for random finite floats.
TEST(Bf16, NoNeighbourIsNearer) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const float value = from_bits(static_cast<uint32_t>(random.next()));
    if (!std::isfinite(value) || std::abs(value) > 3e38f) continue;
    const uint16_t rounded = bf16_from_float(value);
    const auto distance = [value](uint16_t bits) {
      return std::abs(static_cast<double>(float_from_bf16(bits)) - static_cast<double>(value));
    };
    EXPECT_LE(distance(rounded), distance(static_cast<uint16_t>(rounded + 1))) << value;
    if ((rounded & 0x7fffu) == 0) continue;  // zero has its neighbour on the other side
    EXPECT_LE(distance(rounded), distance(static_cast<uint16_t>(rounded - 1))) << value;
  }
}

// Goal: what has no number stays without. Method: infinities, overflow, and NaNs whose payload
// lies in the bits that go.
TEST(Bf16, InfinityAndNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bf16_from_float(kInfinity), 0x7f80);
  EXPECT_EQ(bf16_from_float(-kInfinity), 0xff80);
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7f80);
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7f80ffffu, 0x7fffffffu, 0xffffffffu}) {
    const uint16_t rounded = bf16_from_float(from_bits(bits));
    EXPECT_TRUE(std::isnan(float_from_bf16(rounded))) << bits;
    EXPECT_EQ(rounded & 0x8040u, (bits >> 16 & 0x8000u) | 0x40u) << bits;
  }
}

}  // namespace
}  // namespace zoffload
