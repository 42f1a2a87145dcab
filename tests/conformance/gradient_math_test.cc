// GradientMath on every instruction set of this CPU against the scalar oracle, bit for bit; and
// both against numbers worked out by hand.
#include "optim/gradient_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/bf16.h"
#include "optim/simd_targets.h"

namespace zoffload {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16};

// `numel` elements, `offset` elements into a larger array whose other bytes must stay as they are.
struct Array {
  Array(DType dtype, size_t numel, size_t offset)
      : dtype(dtype),
        first(offset * dtype_bytes(dtype)),
        bytes(numel * dtype_bytes(dtype)),
        memory(first + bytes + 64, std::byte{0x5a}) {}

  HostSpan span() { return HostSpan(memory).subspan(first, bytes); }
  ConstHostSpan span() const { return ConstHostSpan(memory).subspan(first, bytes); }
  size_t numel() const { return bytes / dtype_bytes(dtype); }

  void set(size_t i, float value) {
    if (dtype == DType::kFloat32) {
      elements<float>(span())[i] = value;
    } else {
      elements<uint16_t>(span())[i] = bf16_from_float(value);
    }
  }
  float get(size_t i) const {
    if (dtype == DType::kFloat32) return elements<float>(span())[i];
    return float_from_bf16(elements<uint16_t>(span())[i]);
  }

  DType dtype;
  size_t first;
  size_t bytes;
  std::vector<std::byte> memory;
};

// Any bits whatever: all kinds of NaN, denormals, ties of rounding.
Array random_bits(DType dtype, size_t numel, size_t offset, uint32_t seed) {
  std::mt19937 random(seed);
  Array array(dtype, numel, offset);
  for (std::byte& byte : array.span()) byte = static_cast<std::byte>(random());
  return array;
}

Array random_values(DType dtype, size_t numel, size_t offset, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Array array(dtype, numel, offset);
  for (size_t i = 0; i < numel; ++i) {
    array.set(i, normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 40) - 20));
  }
  return array;
}

Array array_of(DType dtype, const std::vector<float>& values) {
  Array array(dtype, values.size(), 0);
  for (size_t i = 0; i < values.size(); ++i) array.set(i, values[i]);
  return array;
}

std::vector<size_t> sizes() {
  std::vector<size_t> sizes{1023, 4096};
  for (size_t size = 0; size <= 35; ++size) sizes.push_back(size);
  return sizes;
}

// "oracle" is the scalar one; any other name is the vectorised one on that target.
class GradientMathConformance : public testing::TestWithParam<std::string> {
 protected:
  GradientMathConformance() {
    if (GetParam() == "oracle") {
      math_ = std::make_unique<ScalarGradientMath>();
    } else {
      forced_ = std::make_unique<ForcedSimdTarget>(GetParam());
      EXPECT_EQ(simd_target_in_use(), GetParam());
      math_ = std::make_unique<HighwayGradientMath>();
    }
  }

  double sum_of_squares(const Array& values) const {
    return math_->sum_of_squares(values.span(), values.dtype);
  }

  std::unique_ptr<ForcedSimdTarget> forced_;
  std::unique_ptr<GradientMath> math_;
  const ScalarGradientMath oracle_;
};

// Goal: assign() and accumulate() give the oracle's bits for every pair of dtypes, length and
// offset, on any bits; and write nothing else. Method: random bit patterns, whole arrays compared
// with their surroundings.
TEST_P(GradientMathConformance, MatchesTheOracleOnAnyBits) {
  for (DType from_dtype : kDTypes) {
    for (DType to_dtype : kDTypes) {
      for (size_t numel : sizes()) {
        for (size_t offset : {0, 1, 3}) {
          SCOPED_TRACE(testing::Message()
                       << dtype_name(from_dtype) << " to " << dtype_name(to_dtype) << ", " << numel
                       << " elements from " << offset);
          const Array from = random_bits(from_dtype, numel, offset, 1);
          const Array before = random_bits(to_dtype, numel, offset, 2);
          Array expected = before;
          Array actual = before;
          oracle_.assign(from.span(), from_dtype, expected.span(), to_dtype);
          math_->assign(from.span(), from_dtype, actual.span(), to_dtype);
          ASSERT_EQ(expected.memory, actual.memory) << "assign";
          expected = actual = before;
          oracle_.accumulate(from.span(), from_dtype, expected.span(), to_dtype);
          math_->accumulate(from.span(), from_dtype, actual.span(), to_dtype);
          ASSERT_EQ(expected.memory, actual.memory) << "accumulate";
        }
      }
    }
  }
}

// Goal: sum_of_squares() gives the oracle's bits for both dtypes, every length and offset.
// Method: random values of very different magnitudes, so that the order of additions shows.
TEST_P(GradientMathConformance, SumOfSquaresMatchesTheOracle) {
  for (DType dtype : kDTypes) {
    for (size_t numel : sizes()) {
      for (size_t offset : {0, 1, 3}) {
        const Array values = random_values(dtype, numel, offset, static_cast<uint32_t>(numel));
        ASSERT_EQ(std::bit_cast<uint64_t>(oracle_.sum_of_squares(values.span(), dtype)),
                  std::bit_cast<uint64_t>(sum_of_squares(values)))
            << dtype_name(dtype) << ", " << numel << " elements from " << offset;
      }
    }
  }
}

// Goal: conversions are exact upwards, and round to nearest even downwards.
// Method: by hand: 1 + 2^-8 is halfway between the bf16 numbers 1 and 1 + 2^-7, 1 + 3*2^-8 between
// that and 1 + 2^-6.
TEST_P(GradientMathConformance, AssignByHand) {
  const Array from = array_of(DType::kFloat32, {1.00390625f, 1.01171875f, 1.0039064f, -kInf, kMax});
  const float expected[] = {1.0f, 1.015625f, 1.0078125f, -kInf, kInf};
  Array rounded(DType::kBFloat16, 5, 0);
  Array widened(DType::kFloat32, 5, 0);
  math_->assign(from.span(), DType::kFloat32, rounded.span(), DType::kBFloat16);
  math_->assign(rounded.span(), DType::kBFloat16, widened.span(), DType::kFloat32);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(widened.get(i), expected[i]) << i;
}

// Goal: accumulate() adds in fp32 and rounds once.
// Method: by hand: 1 + 2^-8 in bf16 ties to 1, but a little more, which only fp32 sees, rounds up.
TEST_P(GradientMathConformance, AccumulateByHand) {
  Array to = array_of(DType::kBFloat16, {1.0f, 1.0f, 2.0f, kInf});
  const Array from = array_of(DType::kFloat32, {0.00390625f, 0.00390637f, 3.0f, -kInf});
  math_->accumulate(from.span(), DType::kFloat32, to.span(), DType::kBFloat16);
  EXPECT_EQ(to.get(0), 1.0f);
  EXPECT_EQ(to.get(1), 1.0078125f);
  EXPECT_EQ(to.get(2), 5.0f);
  EXPECT_EQ(elements<uint16_t>(to.span())[3],
            0x7fc0u);  // Inf - Inf is the canonical NaN on every CPU
}

// Goal: 16 lanes by index, then halves: the order that the port promises, and no other.
// Method: 2^30 squared is 2^60, where a double's step is 256: what is smaller is lost if added
// alone.
TEST_P(GradientMathConformance, SumOfSquaresAddsInTheTreeOfThePort) {
  const double large = std::ldexp(1.0, 60);
  for (DType dtype : kDTypes) {
    std::vector<float> values(16 * 257, 0.0f);
    values[0] = std::ldexp(1.0f, 30);
    for (size_t row = 1; row < 257; ++row) values[16 * row] = 1.0f;  // lost, one by one, in lane 0
    EXPECT_EQ(sum_of_squares(array_of(dtype, values)), large);
    for (size_t row = 1; row < 257; ++row) values[16 * row + 8] = 1.0f;  // 256 in lane 8
    EXPECT_EQ(sum_of_squares(array_of(dtype, values)), large + 256);

    std::vector<float> tree(32, 0.0f);
    tree[0] = std::ldexp(1.0f, 30);
    for (size_t i : {4, 20, 12, 28})
      tree[i] = 8.0f;  // 128 each in lanes 4 and 12: together before they meet lane 0
    EXPECT_EQ(sum_of_squares(array_of(dtype, tree)), large + 256);
    for (size_t i : {12, 28})
      std::swap(tree[i], tree[i - 4]);  // lanes 4 and 8: each meets lane 0 alone
    EXPECT_EQ(sum_of_squares(array_of(dtype, tree)), large);
  }
}

// Goal: the sum is finite exactly when every element is; a NaN result is one pattern.
// Method: the largest floats everywhere; then one bad element at each place.
TEST_P(GradientMathConformance, SumOfSquaresIsFiniteIffTheElementsAre) {
  EXPECT_EQ(sum_of_squares(Array(DType::kFloat32, 0, 0)), 0.0);
  const std::vector<float> largest(100, kMax);
  EXPECT_TRUE(std::isfinite(sum_of_squares(array_of(DType::kFloat32, largest))));
  EXPECT_EQ(sum_of_squares(array_of(DType::kFloat32, {1e-45f})), std::ldexp(1.0, -298));
  for (size_t place : {0, 15, 16, 50, 95, 96, 99}) {
    for (float bad : {kInf, -kInf, kNan, -kNan}) {
      std::vector<float> values = largest;
      values[place] = bad;
      const double sum = sum_of_squares(array_of(DType::kFloat32, values));
      EXPECT_FALSE(std::isfinite(sum)) << place;
      EXPECT_EQ(std::isnan(sum), std::isnan(bad)) << place;
      EXPECT_FALSE(std::signbit(sum)) << place;
    }
  }
}

std::vector<std::string> implementations() {
  std::vector<std::string> names = simd_targets();
  names.push_back("oracle");
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, GradientMathConformance, testing::ValuesIn(implementations()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace zoffload
