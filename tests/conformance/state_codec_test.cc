// StateCodec on every instruction set of this CPU against the scalar oracle, bit for bit; and both
// against what the formats promise.
#include "optim/state_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
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
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr Moment kMoments[] = {Moment::kExpAvg, Moment::kExpAvgSq};
constexpr MomentFormat kFormats[] = {MomentFormat::kFloat32, MomentFormat::kBFloat16,
                                     MomentFormat::kInt8};

size_t bytes_per_element(MomentFormat format) {
  return format == MomentFormat::kInt8 ? 1 : moment_bytes(format, 1);
}

// A stored moment, `offset` elements into larger arrays whose other bytes must stay as they are.
struct Stored {
  Stored(MomentFormat format, size_t numel, size_t offset = 0)
      : first(offset * bytes_per_element(format)),
        bytes(numel * bytes_per_element(format)),
        values(first + bytes + 64, std::byte{0x5a}),
        scales((numel + kMomentBlock - 1) / kMomentBlock + 1, 3.0f),
        format(format) {}

  MomentView view() {
    MomentView view;
    view.values = HostSpan(values).subspan(first, bytes);
    if (format == MomentFormat::kInt8) view.scales = std::span(scales).first(scales.size() - 1);
    return view;
  }
  int code(Moment moment, size_t i) const {
    const uint8_t bits = static_cast<uint8_t>(values[first + i]);
    return moment == Moment::kExpAvg ? static_cast<int8_t>(bits) : bits;
  }

  size_t first;
  size_t bytes;
  std::vector<std::byte> values;
  std::vector<float> scales;
  MomentFormat format;
};

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

void expect_same(const Stored& expected, const Stored& actual) {
  ASSERT_EQ(expected.values, actual.values);
  ASSERT_EQ(bits_of(expected.scales), bits_of(actual.scales));
}

// Random values whose blocks have very different magnitudes; exp_avg_sq's are not negative.
std::vector<float> random_values(Moment moment, size_t numel, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(numel);
  int exponent = 0;
  for (size_t i = 0; i < numel; ++i) {
    if (i % kMomentBlock == 0) exponent = static_cast<int>(random() % 270) - 145;
    const float value = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 12) - 6);
    values[i] = std::clamp(std::ldexp(value, exponent), -kMax, kMax);
    if (moment == Moment::kExpAvgSq) values[i] = std::abs(values[i]);
  }
  return values;
}

// A block for each awkward value, among ordinary ones.
std::vector<float> awkward_values() {
  const float awkward[] = {0.0f,
                           -0.0f,
                           kDenormal,
                           -kDenormal,
                           1e-39f,
                           -1e-38f,
                           1e-20f,
                           kMax,
                           -kMax,
                           kInf,
                           -kInf,
                           kNan,
                           -kNan,
                           3.0f,
                           -3.0f,
                           0x1p-126f,
                           0x1p-119f,
                           0x1p-140f,
                           1e-36f,
                           2e36f,
                           std::bit_cast<float>(0x7f800001u),
                           std::bit_cast<float>(0xffc12345u)};
  std::vector<float> values;
  for (float ordinary : {0.0f, 1.0f, 1e-30f, 1e-44f, 3e38f}) {
    for (float value : awkward) {
      for (size_t i = 0; i < kMomentBlock; ++i) {
        values.push_back(i == 77 ? value : ordinary * static_cast<float>(i % 3) / 2.0f);
      }
    }
  }
  return values;
}

std::vector<size_t> sizes() {
  std::vector<size_t> sizes{127, 128, 129, 255, 1000, 1024};
  for (size_t size = 0; size <= 35; ++size) sizes.push_back(size);
  return sizes;
}

// "oracle" is the scalar one; any other name is the vectorised one on that target.
class StateCodecConformance : public testing::TestWithParam<std::string> {
 protected:
  StateCodecConformance() {
    if (GetParam() == "oracle") {
      codec_ = std::make_unique<ScalarStateCodec>();
    } else {
      forced_ = std::make_unique<ForcedSimdTarget>(GetParam());
      EXPECT_EQ(simd_target_in_use(), GetParam());
      codec_ = std::make_unique<HighwayStateCodec>();
    }
  }

  Stored encode(Moment moment, MomentFormat format, const std::vector<float>& values) const {
    Stored stored(format, values.size());
    codec_->encode(moment, format, values, stored.view());
    return stored;
  }
  std::vector<float> decode(Moment moment, Stored& stored, size_t numel) const {
    std::vector<float> values(numel, 7.0f);
    codec_->decode(moment, stored.format, stored.view(), values);
    return values;
  }

  std::unique_ptr<ForcedSimdTarget> forced_;
  std::unique_ptr<StateCodec> codec_;
  const ScalarStateCodec oracle_;
};

// Goal: the oracle's bits for every format, length and offset, on ordinary and on awkward values;
// nothing else is written. Method: whole arrays compared with their surroundings, both ways.
TEST_P(StateCodecConformance, MatchesTheOracle) {
  for (Moment moment : kMoments) {
    for (MomentFormat format : kFormats) {
      std::vector<std::vector<float>> inputs{awkward_values()};
      for (size_t numel : sizes()) inputs.push_back(random_values(moment, numel, 1));
      for (const std::vector<float>& values : inputs) {
        for (size_t offset : {0, 1, 3}) {
          SCOPED_TRACE(testing::Message() << "format " << static_cast<int>(format) << ", moment "
                                          << static_cast<int>(moment) << ", " << values.size()
                                          << " elements from " << offset);
          Stored expected(format, values.size(), offset);
          Stored actual = expected;
          oracle_.encode(moment, format, values, expected.view());
          codec_->encode(moment, format, values, actual.view());
          ASSERT_NO_FATAL_FAILURE(expect_same(expected, actual));
          std::vector<float> expected_values(values.size() + 8, 7.0f);
          std::vector<float> actual_values = expected_values;
          oracle_.decode(moment, format, expected.view(),
                         std::span(expected_values).first(values.size()));
          codec_->decode(moment, format, actual.view(),
                         std::span(actual_values).first(values.size()));
          ASSERT_EQ(bits_of(expected_values), bits_of(actual_values));
        }
      }
    }
  }
}

// Goal: what decode() gave comes back as the same bits, whatever was stored.
// Method: encode, decode, encode; over many blocks of all magnitudes, and the awkward ones.
TEST_P(StateCodecConformance, EncodingTheDecodedGivesTheSameBits) {
  for (Moment moment : kMoments) {
    for (MomentFormat format : kFormats) {
      for (uint32_t seed = 0; seed < 4; ++seed) {
        const std::vector<float> values =
            seed == 0 ? awkward_values() : random_values(moment, 2000 * kMomentBlock, seed);
        Stored once = encode(moment, format, values);
        const Stored twice = encode(moment, format, decode(moment, once, values.size()));
        ASSERT_NO_FATAL_FAILURE(expect_same(once, twice));
      }
    }
  }
}

// Goal: fp32 is exact; bf16 rounds as the rest of the project and decodes exactly, NaN canonical.
// Method: awkward values; every pattern of 16 bits.
TEST_P(StateCodecConformance, FloatFormats) {
  for (Moment moment : kMoments) {
    const std::vector<float> values = awkward_values();
    Stored exact = encode(moment, MomentFormat::kFloat32, values);
    EXPECT_EQ(bits_of(decode(moment, exact, values.size())), bits_of(values));

    Stored rounded = encode(moment, MomentFormat::kBFloat16, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t expected = std::isnan(values[i]) ? 0x7fc0 : bf16_from_float(values[i]);
      ASSERT_EQ(elements<uint16_t>(rounded.view().values)[i], expected) << i;
    }

    Stored all(MomentFormat::kBFloat16, 0x10000);
    for (uint32_t i = 0; i < 0x10000; ++i) {
      elements<uint16_t>(all.view().values)[i] = static_cast<uint16_t>(i);
    }
    const std::vector<float> widened = decode(moment, all, 0x10000);
    for (uint32_t i = 0; i < 0x10000; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(widened[i]), i << 16);
    }
  }
}

// Goal: the codes and the scale of int8, and what they decode to. Method: by hand: in powers of
// two times the limits nothing rounds.
TEST_P(StateCodecConformance, Int8ByHand) {
  std::vector<float> values(kMomentBlock, 0.0f);
  values[0] = -254.0f;  // the largest: scale 2
  values[1] = 100.0f;
  values[2] = 2.9f;   // 1.45 rounds to 1
  values[3] = -3.5f;  // -1.75 rounds to -2
  values[4] = 0.9f;
  Stored stored = encode(Moment::kExpAvg, MomentFormat::kInt8, values);
  EXPECT_EQ(stored.scales[0], 2.0f);
  const int codes[] = {-127, 50, 1, -2, 0, 0};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(stored.code(Moment::kExpAvg, i), codes[i]) << i;
  EXPECT_EQ(decode(Moment::kExpAvg, stored, kMomentBlock)[3], -4.0f);

  std::vector<float> squares(kMomentBlock, 0.0f);
  squares[0] = 510.0f * 510.0f;  // the largest root: scale 2
  squares[1] = 10000.0f;
  squares[2] = 2.9f * 2.9f;
  squares[3] = 3.5f * 3.5f;
  squares[4] = 1e-20f;  // rounds to 0, which a value above zero must not
  Stored roots = encode(Moment::kExpAvgSq, MomentFormat::kInt8, squares);
  EXPECT_EQ(roots.scales[0], 2.0f);
  const int root_codes[] = {255, 50, 1, 2, 1, 0};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(roots.code(Moment::kExpAvgSq, i), root_codes[i]) << i;
  EXPECT_EQ(decode(Moment::kExpAvgSq, roots, kMomentBlock)[3], 16.0f);
}

// Goal: the stated errors of int8 hold for finite values of all magnitudes; a value above zero
// stays above zero. Method: bounds in double from each block's largest value.
TEST_P(StateCodecConformance, Int8ErrorsAreThoseStated) {
  for (Moment moment : kMoments) {
    const bool root = moment == Moment::kExpAvgSq;
    const size_t numel = 2000 * kMomentBlock;
    const std::vector<float> values = random_values(moment, numel, 11);
    Stored stored = encode(moment, MomentFormat::kInt8, values);
    const std::vector<float> decoded = decode(moment, stored, numel);
    for (size_t i = 0; i < numel; ++i) {
      const double scale = stored.scales[i / kMomentBlock];
      const auto linear = [&](double value) { return root ? std::sqrt(value) : value; };
      const double error = std::abs(linear(decoded[i]) - linear(values[i]));
      const bool lifted = root && stored.code(moment, i) == 1;
      const bool flushed = !root && scale == 0.0;
      const double bound = flushed ? 127 * 0x1p-126 : scale * (lifted ? 1.0 : 0.5 + 0x1p-12);
      ASSERT_LE(error, bound) << values[i] << " became " << decoded[i];
      ASSERT_TRUE(std::isfinite(decoded[i])) << values[i];
      ASSERT_TRUE(!root || values[i] == 0.0f || decoded[i] > 0.0f) << values[i];
    }
    for (size_t block = 0; block < numel; block += kMomentBlock) {
      const auto smaller = [](float a, float b) { return std::abs(a) < std::abs(b); };
      const auto from = values.begin() + static_cast<ptrdiff_t>(block);
      const float largest = std::abs(*std::max_element(from, from + kMomentBlock, smaller));
      if (largest < (root ? 0x1p-123f : 0x1p-119f)) continue;
      const auto to = decoded.begin() + static_cast<ptrdiff_t>(block);
      const float kept = std::abs(*std::max_element(to, to + kMomentBlock, smaller));
      ASSERT_NEAR(kept / largest, 1.0f, 0x1p-19f) << largest;
    }
  }
}

// Goal: a block with a value that is not finite, or an exp_avg_sq below zero, decodes to nothing
// finite, and its neighbours are as they were; zeros of either sign give zero bytes.
// Method: one bad value at each of several places.
TEST_P(StateCodecConformance, Int8BlocksThatAreNotFinite) {
  for (Moment moment : kMoments) {
    for (float bad : {kInf, -kInf, kNan, -kNan, -1.0f}) {
      if (bad == -1.0f && moment == Moment::kExpAvg) continue;
      for (size_t place : {0, 5, 64, 127}) {
        std::vector<float> values(3 * kMomentBlock, 1.0f);
        values[kMomentBlock + place] = bad;
        Stored stored = encode(moment, MomentFormat::kInt8, values);
        const std::vector<float> decoded = decode(moment, stored, values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          const bool within = i / kMomentBlock == 1;
          ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]) == 0x7fc00000u, within) << bad << i;
          ASSERT_TRUE(within || std::abs(decoded[i] - 1.0f) < 0x1p-19f) << decoded[i];
        }
      }
    }
    for (float zero : {0.0f, -0.0f}) {
      Stored stored = encode(moment, MomentFormat::kInt8, std::vector<float>(kMomentBlock, zero));
      EXPECT_EQ(std::bit_cast<uint32_t>(stored.scales[0]), 0u);
      for (std::byte code : stored.view().values) ASSERT_EQ(code, std::byte{0});
      const std::vector<float> decoded = decode(moment, stored, kMomentBlock);
      EXPECT_EQ(bits_of(decoded), std::vector<uint32_t>(kMomentBlock, 0u));
    }
  }
}

// Goal: a split master is the same master when joined, whatever it is; the weight is the master
// rounded half up in magnitude. Method: every weight with residuals at the edges, which is every
// rounding there is, and random bits; NaN only as the canonical one.
TEST_P(StateCodecConformance, JoiningTheSplitGivesTheSameBits) {
  std::vector<float> master;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = std::bit_cast<float>(high << 16 | low);
      if (!std::isnan(value)) master.push_back(value);
    }
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100'001; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(value)) master.push_back(value);
  }
  master.push_back(kNan);
  std::vector<uint16_t> param(master.size());
  std::vector<uint16_t> residual(master.size());
  std::vector<float> joined(master.size());
  codec_->split(master, param, residual);
  codec_->join(param, residual, joined);
  ASSERT_EQ(bits_of(joined), bits_of(master));
  for (size_t i = 0; i < master.size(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(master[i]);
    ASSERT_EQ(param[i], (bits + 0x8000u) >> 16);
    ASSERT_EQ(residual[i], bits & 0xffffu);
  }
}

// Goal: every weight with any residual splits back into itself: nothing that is stored is lost.
// Method: all weights, with the residuals at the edges and random ones.
TEST_P(StateCodecConformance, SplittingTheJoinedGivesTheSameHalves) {
  std::vector<uint16_t> param(0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) param[i] = static_cast<uint16_t>(i);
  std::vector<float> master(param.size());
  std::vector<uint16_t> param_again(param.size());
  std::vector<uint16_t> residual_again(param.size());
  std::mt19937 random(4);
  std::vector<uint16_t> lows{0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (int i = 0; i < 50; ++i) lows.push_back(static_cast<uint16_t>(random()));
  for (uint16_t low : lows) {
    const std::vector<uint16_t> residual(param.size(), low);
    codec_->join(param, residual, master);
    codec_->split(master, param_again, residual_again);
    ASSERT_EQ(param_again, param) << low;
    ASSERT_EQ(residual_again, residual) << low;
  }
}

std::vector<std::string> implementations() {
  std::vector<std::string> names = simd_targets();
  names.push_back("oracle");
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, StateCodecConformance, testing::ValuesIn(implementations()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace zoffload
