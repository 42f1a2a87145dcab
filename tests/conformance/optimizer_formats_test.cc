// Every optimizer of the table in every state format, on every instruction set of this CPU, against
// its scalar oracle, bit for bit; and what the formats promise of the update: a lossless split,
// rounding that is right on average, training that converges as in fp32.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "optim/simd_targets.h"
#include "tests/conformance/format_state.h"
#include "tests/conformance/optimizer_table.h"

namespace zoffload {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16};
constexpr StateFormat kInt8{MasterFormat::kFloat32, MomentFormat::kInt8};
constexpr StateFormat kBFloat16{MasterFormat::kFloat32, MomentFormat::kBFloat16};

PlainState random_plain(size_t numel, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  PlainState state(numel);
  for (size_t i = 0; i < numel; ++i) {
    state.master[i] = normal(random);
    state.exp_avg[i] = 0.1f * normal(random);
    state.exp_avg_sq[i] = 0.01f * std::abs(normal(random));
    state.grad[i] = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 24) - 12);
  }
  return state;
}

// Awkward gradients with awkward weights; each block has one kind of moment, beside ordinary ones.
PlainState extreme_plain() {
  const float values[] = {0.0f,  -0.0f, 1.0f,  -3.5f,   1e-45f, -1e-40f, 1.2e-38f, 1e-20f,
                          1e20f, 1e30f, 3e38f, 3.4e38f, kInf,   -kInf,   kNan};
  const float moments[] = {0.0f, 1e-44f, 1e-38f, 1e-8f, 0.25f, 1e30f, 3.4e38f, kInf};
  const size_t kinds = std::size(values);
  PlainState state(std::size(moments) * 2 * kMomentBlock + 57);
  for (size_t i = 0; i < state.master.size(); ++i) {
    const float moment = moments[i / (2 * kMomentBlock) % std::size(moments)];
    const bool ordinary = i % 3 == 0;
    state.grad[i] = i / kMomentBlock % 2 == 0 ? values[i % (kinds - 3)] : values[i % kinds];
    state.master[i] = values[i / kinds % kinds];
    state.exp_avg[i] = ordinary ? 1e-3f : (i % 2 == 0 ? moment : -moment);
    state.exp_avg_sq[i] = ordinary ? 1e-6f : moment;
  }
  return state;
}

template <typename T>
void expect_same_memory(const Lines<T>& expected, const Lines<T>& actual, const char* what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::memcmp(&expected[i], &actual[i], sizeof(T)), 0) << what << "[" << i << "]";
  }
}

void expect_same_memory(const FormatState& expected, const FormatState& actual) {
  expect_same_memory(expected.master, actual.master, "master");
  expect_same_memory(expected.param, actual.param, "param");
  expect_same_memory(expected.residual, actual.residual, "residual");
  expect_same_memory(expected.exp_avg, actual.exp_avg, "exp_avg");
  expect_same_memory(expected.exp_avg_sq, actual.exp_avg_sq, "exp_avg_sq");
  expect_same_memory(expected.scales, actual.scales, "scales");
  expect_same_memory(expected.scales_sq, actual.scales_sq, "scales_sq");
  expect_same_memory(expected.grad, actual.grad, "grad");
  expect_same_memory(expected.grad16, actual.grad16, "grad16");
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (std::string_view name : state_format_names()) names.emplace_back(name);
  return names;
}

using Case = std::tuple<std::string, std::string, std::string>;  // optimizer, target, format

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const auto& [optimizer, target, format] = info.param;
  std::string name = optimizer + "_" + target + "_" + format;
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

class OptimizerFormats : public testing::TestWithParam<Case> {
 protected:
  OptimizerFormats()
      : forced_(std::get<1>(GetParam())),
        optimizer_(must_make(std::get<0>(GetParam()))),
        oracle_(must_make("scalar_" + std::get<0>(GetParam()))),
        format_(*state_format_named(std::get<2>(GetParam()))) {}

  FormatState state(const PlainState& plain, size_t offset = 0) const {
    return FormatState(format_, optimizer_->moments(), plain, offset);
  }
  bool int8() const { return format_.moments == MomentFormat::kInt8; }

  // Steps copies of `state` with both, for both dtypes of gradient, and compares all arrays whole.
  void compare(const FormatState& state, const Hyper& hyper, float grad_scale, uint64_t step,
               bool has_param = true) const {
    for (DType grad_dtype : kDTypes) {
      FormatState expected = state;
      FormatState actual = state;
      oracle_->update(expected.view(grad_dtype, has_param, 0, state.numel), hyper, grad_scale,
                      step);
      optimizer_->update(actual.view(grad_dtype, has_param, 0, state.numel), hyper, grad_scale,
                         step);
      ASSERT_NO_FATAL_FAILURE(expect_same_memory(expected, actual)) << dtype_name(grad_dtype);
    }
  }

  const ForcedSimdTarget forced_;
  const std::unique_ptr<Optimizer> optimizer_;
  const std::unique_ptr<Optimizer> oracle_;
  const StateFormat format_;
};

// Goal: the oracle's bits for every length, alignment and place within the parameter; nothing
// outside is touched. Method: random values, lengths around vectors, blocks and tiles, offsets.
TEST_P(OptimizerFormats, MatchesTheOracleAtEverySizeAndOffset) {
  const Hyper hyper{.lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9};
  std::vector<size_t> sizes{127, 128, 129, 255, 256, 257, 511, 512, 513, 1500};
  for (size_t size = 0; size <= 18; ++size) sizes.push_back(size);
  for (size_t numel : sizes) {
    for (size_t offset : {0, 1, 3}) {
      for (uint64_t first : {uint64_t{0}, uint64_t{384}, (uint64_t{1} << 33) + 128}) {
        FormatState before = state(random_plain(numel, 1), offset);
        before.first = first + (int8() ? 0 : offset);
        SCOPED_TRACE(testing::Message() << numel << " from " << offset << ", first " << first);
        ASSERT_NO_FATAL_FAILURE(compare(before, hyper, 0.5f, 3, offset != 1));
      }
    }
  }
}

// Goal: the oracle's bits where the weights go past the caches. Method: a piece that is long enough
// for that, aligned and not, with a length that ends within a line.
TEST_P(OptimizerFormats, MatchesTheOracleOnLargePieces) {
  for (size_t offset : {0, 1, 16}) {
    ASSERT_NO_FATAL_FAILURE(
        compare(state(random_plain(40'007, 2), offset), Hyper{.weight_decay = 0.1}, 1.0f, 2));
  }
}

// Goal: the oracle's bits on denormals, the largest numbers, NaN and Inf, and at the edges of the
// settings. Method: awkward values under every awkward setting.
TEST_P(OptimizerFormats, MatchesTheOracleOnExtremeValues) {
  const std::vector<Hyper> hypers = {
      {},
      {.lr = 0.0},
      {.lr = 1.0, .eps = 0.0},
      {.lr = 0.1, .beta1 = 0.0, .beta2 = 0.0, .weight_decay = 0.01},
      {.lr = 0.1, .beta1 = 0.999999, .beta2 = 0.999999, .weight_decay = 0.5},
      {.lr = 0.1, .beta1 = 0.5, .beta2 = 0.95, .eps = 1e-30, .weight_decay = 1e-4},
  };
  const FormatState before = state(extreme_plain());
  for (const Hyper& hyper : hypers) {
    for (uint64_t step : {1, 2, 1000, 1'000'000}) {
      for (float grad_scale : {1.0f, 0.0f, 3e-39f}) {
        SCOPED_TRACE(testing::Message() << "lr " << hyper.lr << " beta1 " << hyper.beta1 << " step "
                                        << step << " grad_scale " << grad_scale);
        ASSERT_NO_FATAL_FAILURE(compare(before, hyper, grad_scale, step));
      }
    }
  }
}

// Goal: a long run stays together; and what is stored then is what its decoded values encode to, so
// that a state which is saved and loaded goes on with the same bits. Method: many steps.
TEST_P(OptimizerFormats, MatchesTheOracleOverManySteps) {
  const Hyper hyper{.lr = 3e-3, .beta2 = 0.95, .weight_decay = 0.1};
  FormatState expected = state(random_plain(700, 5));
  FormatState actual = expected;
  for (uint64_t step = 1; step <= 100; ++step) {
    const PlainState next = random_plain(700, 1000 + static_cast<uint32_t>(step));
    expected.set_grad(next.grad);
    actual.set_grad(next.grad);
    oracle_->update(expected.view(), hyper, 1.0f, step);
    optimizer_->update(actual.view(), hyper, 1.0f, step);
    FormatState loaded = actual;
    const auto reload = [&](bool kept, Moment moment) {
      if (!kept) return;
      loaded.codec.encode(moment, format_.moments, actual.moment(moment),
                          loaded.moment_view(moment, 0, loaded.numel));
    };
    reload(loaded.kept.exp_avg, Moment::kExpAvg);
    reload(loaded.kept.exp_avg_sq, Moment::kExpAvgSq);
    ASSERT_NO_FATAL_FAILURE(expect_same_memory(actual, loaded)) << step;
  }
  ASSERT_NO_FATAL_FAILURE(expect_same_memory(expected, actual));
}

// Goal: no bit depends on how a parameter is cut into pieces.
// Method: the whole against random cuts (at blocks, in int8), several times.
TEST_P(OptimizerFormats, PiecesGiveTheBitsOfTheWhole) {
  std::mt19937 random(9);
  const size_t grain = int8() ? kMomentBlock : 1;
  for (int round = 0; round < 20; ++round) {
    FormatState whole = state(random_plain(2001, 7));
    whole.first = 5 * kMomentBlock;
    FormatState pieces = whole;
    optimizer_->update(whole.view(), Hyper{.weight_decay = 0.1}, 1.0f, 4);
    for (size_t from = 0; from < pieces.numel;) {
      const size_t count = std::min(pieces.numel - from, (1 + random() % 600 / grain) * grain);
      optimizer_->update(pieces.view(DType::kFloat32, true, from, count),
                         Hyper{.weight_decay = 0.1}, 1.0f, 4);
      from += count;
    }
    ASSERT_NO_FATAL_FAILURE(expect_same_memory(whole, pieces));
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerFormats,
                         testing::Combine(testing::ValuesIn(vectorised_optimizers()),
                                          testing::ValuesIn(simd_targets()),
                                          testing::ValuesIn(format_names())),
                         case_name);

class OptimizerRounding : public testing::TestWithParam<std::string> {
 protected:
  const std::unique_ptr<Optimizer> optimizer_ = must_make(GetParam());
};

// Goal: a split master loses nothing: the same weights and moments as with an fp32 master.
// Method: both over many steps, for each format of the moments.
TEST_P(OptimizerRounding, SplitIsLossless) {
  for (MomentFormat moments :
       {MomentFormat::kFloat32, MomentFormat::kBFloat16, MomentFormat::kInt8}) {
    const PlainState plain = random_plain(1000, 3);
    const MomentSet kept = optimizer_->moments();
    FormatState whole({MasterFormat::kFloat32, moments}, kept, plain);
    FormatState split({MasterFormat::kSplit, moments}, kept, plain);
    for (uint64_t step = 1; step <= 30; ++step) {
      const PlainState next = random_plain(1000, 50 + static_cast<uint32_t>(step));
      whole.set_grad(next.grad);
      split.set_grad(next.grad);
      optimizer_->update(whole.view(), Hyper{.lr = 0.01}, 0.5f, step);
      optimizer_->update(split.view(), Hyper{.lr = 0.01}, 0.5f, step);
    }
    EXPECT_EQ(whole.weights(), split.weights());
    expect_same_memory(whole.exp_avg, split.exp_avg, "exp_avg");
    expect_same_memory(whole.exp_avg_sq, split.exp_avg_sq, "exp_avg_sq");
  }
}

// The moments that a step gives from zero moments: exp_avg = grad / 2, exp_avg_sq = grad^2 / 2.
constexpr Hyper kHalves{.lr = 0.0, .beta1 = 0.5, .beta2 = 0.5};

// One step of 4096 elements with one gradient, from zero, in each of 16 steps; `largest` is the
// gradient of every block's first element, which is not counted. The mean of what is stored.
template <class Decoded>
double mean_of_draws(const Optimizer& optimizer, StateFormat format, float grad, float largest,
                     uint64_t seed, const Decoded& decoded) {
  PlainState plain(4096);
  for (size_t i = 0; i < plain.grad.size(); ++i) {
    plain.grad[i] = i % kMomentBlock == 0 ? largest : grad;
  }
  std::vector<double> all;
  for (uint64_t step = 1; step <= 16; ++step) {
    FormatState state(format, optimizer.moments(), plain);
    state.seed = seed;
    optimizer.update(state.view(), kHalves, 1.0f, step);
    const std::vector<float> values = decoded(state);
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % kMomentBlock != 0) all.push_back(values[i]);
    }
  }
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  double sum = 0.0;
  for (double value : all) {
    EXPECT_TRUE(value == *low || value == *high) << value;
    sum += value;
  }
  return sum / static_cast<double>(all.size());
}

std::vector<float> exp_avg_of(FormatState& state) { return state.moment(Moment::kExpAvg); }
std::vector<float> roots_of(FormatState& state) {
  std::vector<float> values = state.moment(Moment::kExpAvgSq);
  for (float& value : values) value = std::sqrt(value);
  return values;
}

// Goal: bf16 moments go to one of the two neighbours, with the chances that make the mean right,
// for whatever fraction and either sign. Method: 65000 draws; their mean has a deviation of 0.002
// of the neighbours' distance at most, so 0.01 never fails by chance (nor is there any: seeds are
// fixed).
TEST_P(OptimizerRounding, BFloat16IsRightOnAverage) {
  for (double fraction : {0.0, 0.03125, 0.25, 0.5, 0.8125, 0.984375}) {
    for (double sign : {1.0, -1.0}) {
      const double value = sign * (1.0 + fraction * 0x1p-7);  // the distance from 1 is 2^-7
      const float grad = static_cast<float>(2.0 * value);
      const double mean = mean_of_draws(*optimizer_, kBFloat16, grad, grad, 5, exp_avg_of);
      EXPECT_NEAR(mean, value, 0.01 * 0x1p-7) << fraction;
    }
    const double square = 1.0 + fraction * 0x1p-7;
    const float grad = static_cast<float>(std::sqrt(2.0 * square));
    const double mean =
        mean_of_draws(*optimizer_, kBFloat16, grad, grad, 5,
                      [](FormatState& state) { return state.moment(Moment::kExpAvgSq); });
    EXPECT_NEAR(mean, square, 0.01 * 0x1p-7) << fraction;
  }
}

// Goal: the same of int8, where a code is a multiple of the block's scale. Method: the block's
// largest value makes the scale 1 (and 0.5 for roots); fractions between two codes.
TEST_P(OptimizerRounding, Int8IsRightOnAverage) {
  for (double fraction : {0.0, 0.03125, 0.25, 0.5, 0.8125, 0.96875}) {
    for (double sign : {1.0, -1.0}) {
      const double value = sign * (40.0 + fraction);
      const float grad = static_cast<float>(2.0 * value);
      const double mean = mean_of_draws(*optimizer_, kInt8, grad, 254.0f, 5, exp_avg_of);
      EXPECT_NEAR(mean, value, 0.01) << fraction;
    }
    const double root = 0.5 * (80.0 + fraction);
    const float grad = static_cast<float>(std::sqrt(2.0) * root);
    const float largest = static_cast<float>(std::sqrt(2.0) * 127.5);
    const double mean = mean_of_draws(*optimizer_, kInt8, grad, largest, 5, roots_of);
    EXPECT_NEAR(mean, root, 0.01 * 0.5) << fraction;
  }
}

// Goal: however it is rounded, a block's largest value has the largest code, from which the scale
// is found again. Method: half a million draws on blocks of one value of either sign, so that each
// is the largest; a code less would show as a smaller magnitude.
TEST_P(OptimizerRounding, Int8KeepsTheLargestValue) {
  std::mt19937 random(6);
  std::uniform_real_distribution<float> uniform(1.0f, 4.0f);
  PlainState plain(64 * kMomentBlock);
  for (uint64_t step = 1; step <= 60; ++step) {
    for (size_t i = 0; i < plain.grad.size(); ++i) {
      const float largest = i % kMomentBlock == 0 ? uniform(random) : -std::abs(plain.grad[i - 1]);
      plain.grad[i] = i % 2 == 0 ? std::abs(largest) : largest;
    }
    FormatState state(kInt8, optimizer_->moments(), plain);
    optimizer_->update(state.view(), kHalves, 1.0f, step);
    for (Moment moment : {Moment::kExpAvg, Moment::kExpAvgSq}) {
      const std::vector<float> values = state.moment(moment);
      for (size_t i = 1; i < values.size(); ++i) {
        ASSERT_TRUE(i % kMomentBlock == 0 || std::abs(values[i]) == std::abs(values[i - 1])) << i;
      }
    }
  }
}

// Goal: seeds, steps, elements and the two moments draw apart: errors do not add up. Method: with
// each value halfway between two neighbours, two series of draws agree in half of all cases.
TEST_P(OptimizerRounding, DrawsAreIndependent) {
  PlainState plain(4096);
  for (float& grad : plain.grad) grad = static_cast<float>(2.0 * (1.0 + 0x1p-8));
  const auto draws = [&](Moment moment, uint64_t seed, uint64_t first, uint64_t step) {
    PlainState of_moment = plain;
    if (moment == Moment::kExpAvgSq) {
      for (float& grad : of_moment.grad) grad = std::sqrt(grad);
    }
    FormatState state(kBFloat16, optimizer_->moments(), of_moment);
    state.seed = seed;
    state.first = first;
    optimizer_->update(state.view(), kHalves, 1.0f, step);
    return state.moment(moment);
  };
  const auto agreeing = [](const std::vector<float>& a, const std::vector<float>& b) {
    double count = 0.0;
    for (size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 1.0 : 0.0;
    return count / static_cast<double>(a.size());
  };
  const std::vector<float> base = draws(Moment::kExpAvg, 1, 0, 1);
  EXPECT_EQ(base, draws(Moment::kExpAvg, 1, 0, 1));
  const double deviations = 4.0 * 0.5 / std::sqrt(4096.0);
  for (uint64_t other : {2, 3, 1000}) {
    EXPECT_NEAR(agreeing(base, draws(Moment::kExpAvg, other, 0, 1)), 0.5, deviations);
    EXPECT_NEAR(agreeing(base, draws(Moment::kExpAvg, 1, 0, other)), 0.5, deviations);
    EXPECT_NEAR(agreeing(base, draws(Moment::kExpAvg, 1, other, 1)), 0.5, deviations);
  }
  EXPECT_NEAR(agreeing(base, draws(Moment::kExpAvgSq, 1, 0, 1)), 0.5, deviations);
  const std::vector<float> later = draws(Moment::kExpAvg, 1, 4096, 1);
  EXPECT_NEAR(agreeing(base, later), 0.5, deviations);
}

// Goal: a gradient that is not finite leaves the blocks of other elements alone, and is not hidden
// in its own. Method: one NaN, and one that makes Inf, in int8.
TEST_P(OptimizerRounding, ABadGradientPoisonsItsBlockOnly) {
  for (float bad : {kNan, kInf}) {
    PlainState plain = random_plain(4 * kMomentBlock, 8);
    FormatState good(kInt8, optimizer_->moments(), plain);
    plain.grad[kMomentBlock + 9] = bad;
    FormatState poisoned(kInt8, optimizer_->moments(), plain);
    optimizer_->update(good.view(), Hyper{}, 1.0f, 1);
    optimizer_->update(poisoned.view(), Hyper{}, 1.0f, 1);
    const std::vector<float> expected = good.moment(Moment::kExpAvg);
    const std::vector<float> actual = poisoned.moment(Moment::kExpAvg);
    for (size_t i = 0; i < plain.grad.size(); ++i) {
      const bool own_block = i / kMomentBlock == 1;
      ASSERT_TRUE(own_block ? std::isnan(actual[i]) : actual[i] == expected[i]) << i;
    }
  }
}

// Least squares of 256 weights with curvatures from 0.1 to 10 and noisy gradients of a bf16 model:
// the loss at the end, averaged over the last steps.
double trained_loss(const Optimizer& optimizer, StateFormat format) {
  constexpr size_t kNumel = 256;
  constexpr uint64_t kSteps = 800;
  std::mt19937 random(12);
  std::normal_distribution<double> normal;
  std::vector<double> target(kNumel);
  for (double& value : target) value = normal(random);
  FormatState state(format, optimizer.moments(), PlainState(kNumel));
  std::vector<float> grad(kNumel);
  double loss = 0.0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const std::vector<float> weights = state.weights();
    for (size_t i = 0; i < kNumel; ++i) {
      const double curvature = std::pow(10.0, static_cast<double>(i % 21) / 10.0 - 1.0);
      const double error = weights[i] - target[i];
      grad[i] = static_cast<float>(curvature * (error + 0.1 * normal(random)));
      if (step > kSteps - 100) loss += 0.5 * curvature * error * error / 100.0;
    }
    state.set_grad(grad);
    const double decay = 1.0 - static_cast<double>(step) / static_cast<double>(kSteps + 1);
    optimizer.update(state.view(DType::kBFloat16, true, 0, kNumel),
                     Hyper{.lr = 0.03 * decay, .beta2 = 0.99}, 1.0f, step);
  }
  return loss;
}

// Goal: training converges in every format as in fp32. Method: the same small problem with the same
// noise; its loss, hundreds at first, ends within 1 % of fp32's with bf16 moments, within 10 % with
// int8, and split changes nothing.
TEST_P(OptimizerRounding, TrainingConvergesAsInFloat32) {
  const double exact = trained_loss(*optimizer_, {});
  ASSERT_LT(exact, 0.1);
  for (std::string_view name : state_format_names()) {
    const StateFormat format = *state_format_named(name);
    const double loss = trained_loss(*optimizer_, format);
    const double bound = format.moments == MomentFormat::kFloat32    ? 0.0
                         : format.moments == MomentFormat::kBFloat16 ? 0.01
                                                                     : 0.1;
    EXPECT_NEAR(loss / exact, 1.0, bound) << name << ": " << loss << " against " << exact;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerRounding,
                         testing::Values("adamw", "adam", "scalar_adamw", "scalar_adam"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace zoffload
