// Every optimizer of the table, on every instruction set of this CPU, with every dtype, against its
// scalar oracle, bit for bit; and the oracles against numbers worked out by hand and against the
// same formula in double.
#include "core/ports/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/bf16.h"
#include "optim/optimizers.h"
#include "optim/simd_targets.h"
#include "tests/conformance/optimizer_table.h"

namespace zoffload {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kGuard =
    8;  // elements before and after the piece under test, which must stay as they are

// One parameter with its state and gradients in both dtypes, `offset` elements into larger arrays.
struct State {
  State(size_t numel, size_t offset)
      : numel(numel),
        first(kGuard + offset),
        master(first + numel + kGuard, 1.0f),
        exp_avg(master),
        exp_avg_sq(master),
        grad(master),
        param(master.size(), 1),
        grad16(master.size(), 1) {}

  void set_grad(size_t i, float value) {
    grad[first + i] = value;
    grad16[first + i] = bf16_from_float(value);
  }

  // `count` elements from `from` on.
  UpdateView view(DType grad_dtype, bool has_param, size_t from, size_t count) {
    UpdateView view;
    view.master = std::span(master).subspan(first + from, count);
    view.exp_avg = std::span(exp_avg).subspan(first + from, count);
    view.exp_avg_sq = std::span(exp_avg_sq).subspan(first + from, count);
    if (has_param) view.param = std::span(param).subspan(first + from, count);
    view.grad_dtype = grad_dtype;
    view.grad = grad_dtype == DType::kFloat32
                    ? ConstHostSpan(std::as_bytes(std::span(grad).subspan(first + from, count)))
                    : ConstHostSpan(std::as_bytes(std::span(grad16).subspan(first + from, count)));
    return view;
  }

  size_t numel;
  size_t first;
  std::vector<float> master;
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
  std::vector<float> grad;
  std::vector<uint16_t> param;
  std::vector<uint16_t> grad16;
};

State random_state(size_t numel, size_t offset, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  State state(numel, offset);
  for (size_t i = 0; i < numel; ++i) {
    state.master[state.first + i] = normal(random);
    state.exp_avg[state.first + i] = 0.1f * normal(random);
    state.exp_avg_sq[state.first + i] = 0.01f * std::abs(normal(random));
    state.set_grad(i, normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 24) - 12));
  }
  return state;
}

// Every combination of awkward numbers as gradient, weight and moments.
State extreme_state() {
  const float values[] = {0.0f,
                          -0.0f,
                          1.0f,
                          -3.5f,
                          1e-45f,
                          -1e-40f,
                          1.2e-38f,
                          1e-20f,
                          1e20f,
                          -1e30f,
                          3.4e38f,
                          -3.4e38f,
                          kInf,
                          -kInf,
                          kNan,
                          std::bit_cast<float>(0x7f800001u),
                          std::bit_cast<float>(0xffc12345u)};
  const float moments[] = {
      0.0f, 1e-42f, 1e-8f, 0.25f, 1e30f, kInf, std::bit_cast<float>(0xffc54321u)};
  const size_t numel = std::size(values) * std::size(values) * std::size(moments);
  State state(numel, 1);
  size_t i = 0;
  for (float grad : values) {
    for (float weight : values) {
      for (float moment : moments) {
        state.set_grad(i, grad);
        state.master[state.first + i] = weight;
        state.exp_avg[state.first + i] = i % 2 == 0 ? moment : -moment;
        state.exp_avg_sq[state.first + i] = moment;
        ++i;
      }
    }
  }
  return state;
}

template <typename T>
void expect_same_bits(const std::vector<T>& expected, const std::vector<T>& actual,
                      const char* what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if constexpr (std::is_same_v<T, float>) {
      ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(actual[i]))
          << what << "[" << i << "]: " << expected[i] << " against " << actual[i];
    } else {
      ASSERT_EQ(expected[i], actual[i]) << what << "[" << i << "]";
    }
  }
}

void expect_same_bits(const State& expected, const State& actual) {
  expect_same_bits(expected.master, actual.master, "master");
  expect_same_bits(expected.exp_avg, actual.exp_avg, "exp_avg");
  expect_same_bits(expected.exp_avg_sq, actual.exp_avg_sq, "exp_avg_sq");
  expect_same_bits(expected.param, actual.param, "param");
  expect_same_bits(expected.grad, actual.grad, "grad");
}

using Case = std::tuple<std::string, std::string, DType,
                        bool>;  // optimizer, target, gradients, bf16 parameters

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const auto& [optimizer, target, grad_dtype, has_param] = info.param;
  return optimizer + "_" + target + "_grad_" + dtype_name(grad_dtype) + (has_param ? "_param" : "");
}

class OptimizerConformance : public testing::TestWithParam<Case> {
 protected:
  OptimizerConformance()
      : forced_(std::get<1>(GetParam())),
        optimizer_(must_make(std::get<0>(GetParam()))),
        oracle_(must_make("scalar_" + std::get<0>(GetParam()))) {}

  UpdateView view(State& state, size_t from, size_t count) const {
    return state.view(std::get<2>(GetParam()), std::get<3>(GetParam()), from, count);
  }
  UpdateView view(State& state) const { return view(state, 0, state.numel); }

  // Steps copies of `state` with both, and compares all arrays whole.
  void compare(const State& state, const Hyper& hyper, float grad_scale, uint64_t step) const {
    State expected = state;
    State actual = state;
    oracle_->update(view(expected), hyper, grad_scale, step);
    optimizer_->update(view(actual), hyper, grad_scale, step);
    expect_same_bits(expected, actual);
  }

  const ForcedSimdTarget forced_;
  const std::unique_ptr<Optimizer> optimizer_;
  const std::unique_ptr<Optimizer> oracle_;
};

// Goal: this suite does run on the instruction set that it names, and on the optimizer.
// Method: ask.
TEST_P(OptimizerConformance, RunsWhereItSays) {
  EXPECT_EQ(simd_target_in_use(), std::get<1>(GetParam()));
  EXPECT_EQ(optimizer_->name(), std::get<0>(GetParam()));
}

// Goal: the oracle's bits for every length and every alignment that an element can have; nothing
// outside is touched. Method: random values, lengths around every vector size, offsets, and guards
// around each array.
TEST_P(OptimizerConformance, MatchesTheOracleAtEverySizeAndOffset) {
  const Hyper hyper{.lr = 1e-2, .weight_decay = 0.1};
  std::vector<size_t> sizes{1023};
  for (size_t size = 0; size <= 35; ++size) sizes.push_back(size);
  for (size_t numel : sizes) {
    for (size_t offset : {0, 1, 3}) {
      SCOPED_TRACE(testing::Message() << numel << " elements from " << offset);
      ASSERT_NO_FATAL_FAILURE(compare(random_state(numel, offset, 1), hyper, 0.5f, 3));
    }
  }
}

// Goal: the oracle's bits on denormals, on the largest numbers, on NaN and Inf, and at the edges of
// the settings. Method: every combination of awkward values, under every awkward setting and step.
TEST_P(OptimizerConformance, MatchesTheOracleOnExtremeValues) {
  const std::vector<Hyper> hypers = {
      {},
      {.lr = 0.0},
      {.lr = 1.0, .eps = 0.0},
      {.lr = 0.1, .beta1 = 0.0, .beta2 = 0.0, .weight_decay = 0.01},
      {.lr = 0.1, .beta1 = 0.999999, .beta2 = 0.999999, .weight_decay = 0.5},
      {.lr = 0.1, .beta1 = 0.5, .beta2 = 0.95, .eps = 1e-30, .weight_decay = 1e-4},
  };
  const State state = extreme_state();
  for (const Hyper& hyper : hypers) {
    for (uint64_t step : {1, 2, 10, 1000, 1'000'000}) {
      for (float grad_scale : {1.0f, 0.0f, 3e-39f, 0.37f}) {
        SCOPED_TRACE(testing::Message() << "lr " << hyper.lr << " beta1 " << hyper.beta1 << " step "
                                        << step << " grad_scale " << grad_scale);
        ASSERT_NO_FATAL_FAILURE(compare(state, hyper, grad_scale, step));
      }
    }
  }
}

// Goal: a long run stays together: a difference in one bit would grow.
// Method: two hundred steps with a new gradient each, states compared at the end.
TEST_P(OptimizerConformance, MatchesTheOracleOverManySteps) {
  const Hyper hyper{.lr = 3e-3, .beta2 = 0.95, .weight_decay = 0.1};
  State expected = random_state(101, 1, 5);
  State actual = expected;
  for (uint64_t step = 1; step <= 200; ++step) {
    const State next = random_state(101, 1, 1000 + static_cast<uint32_t>(step));
    expected.grad = actual.grad = next.grad;
    expected.grad16 = actual.grad16 = next.grad16;
    oracle_->update(view(expected), hyper, 1.0f, step);
    optimizer_->update(view(actual), hyper, 1.0f, step);
  }
  ASSERT_NO_FATAL_FAILURE(expect_same_bits(expected, actual));
}

// Goal: no bit depends on how a parameter is cut into pieces.
// Method: the whole against random cuts, several times.
TEST_P(OptimizerConformance, PiecesGiveTheBitsOfTheWhole) {
  const Hyper hyper{.lr = 1e-2, .weight_decay = 0.1};
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    const State state = random_state(1023, 0, 7);
    State whole = state;
    State pieces = state;
    optimizer_->update(view(whole), hyper, 1.0f, 4);
    for (size_t from = 0; from < state.numel;) {
      const size_t count = std::min<size_t>(state.numel - from, random() % 70);
      optimizer_->update(view(pieces, from, count), hyper, 1.0f, 4);
      from += count;
    }
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(whole, pieces));
  }
}

// Goal: the bf16 parameter is the new master rounded once, as the rest of the project rounds, NaN
// included. Method: recompute it from the master, over awkward values; without bf16 parameters that
// array is untouched.
TEST_P(OptimizerConformance, ParamIsTheRoundedMaster) {
  for (State state : {random_state(777, 1, 3), extreme_state()}) {
    optimizer_->update(view(state), Hyper{.lr = 0.1}, 1.0f, 1);
    for (size_t i = state.first; i < state.first + state.numel; ++i) {
      const uint16_t expected = std::get<3>(GetParam()) ? bf16_from_float(state.master[i]) : 1;
      ASSERT_EQ(state.param[i], expected) << i;
    }
  }
}

// Goal: grad_scale multiplies the gradient first, and by nothing more.
// Method: a scaled step against a plain step on gradients that were scaled (a power of two: exact
// in bf16 as well).
TEST_P(OptimizerConformance, GradScaleIsAppliedFirst) {
  const State state = random_state(300, 0, 8);
  State scaled = state;
  State plain = state;
  for (size_t i = 0; i < state.numel; ++i) plain.set_grad(i, state.grad[state.first + i] * 0.25f);
  for (size_t i = 0; i < state.numel; ++i)
    plain.grad16[state.first + i] =
        bf16_from_float(float_from_bf16(state.grad16[state.first + i]) * 0.25f);
  optimizer_->update(view(scaled), Hyper{.weight_decay = 0.1}, 0.25f, 2);
  optimizer_->update(view(plain), Hyper{.weight_decay = 0.1}, 1.0f, 2);
  ASSERT_NO_FATAL_FAILURE(expect_same_bits(plain.master, scaled.master, "master"));
  ASSERT_NO_FATAL_FAILURE(expect_same_bits(plain.exp_avg, scaled.exp_avg, "exp_avg"));
  ASSERT_NO_FATAL_FAILURE(expect_same_bits(plain.exp_avg_sq, scaled.exp_avg_sq, "exp_avg_sq"));
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerConformance,
                         testing::Combine(testing::ValuesIn(vectorised_optimizers()),
                                          testing::ValuesIn(simd_targets()),
                                          testing::Values(DType::kFloat32, DType::kBFloat16),
                                          testing::Bool()),
                         case_name);

// One step of one element by the textbook, in double: the formula, free of how the code writes it.
struct Reference {
  double weight;
  double exp_avg = 0.0;
  double exp_avg_sq = 0.0;

  void update(double grad, const Hyper& hyper, bool decoupled, double step) {
    if (decoupled) weight -= hyper.lr * hyper.weight_decay * weight;
    if (!decoupled) grad += hyper.weight_decay * weight;
    exp_avg = hyper.beta1 * exp_avg + (1 - hyper.beta1) * grad;
    exp_avg_sq = hyper.beta2 * exp_avg_sq + (1 - hyper.beta2) * grad * grad;
    const double unbiased = exp_avg / (1 - std::pow(hyper.beta1, step));
    const double unbiased_sq = exp_avg_sq / (1 - std::pow(hyper.beta2, step));
    weight -= hyper.lr * unbiased / (std::sqrt(unbiased_sq) + hyper.eps);
  }
};

class OptimizerFormula : public testing::TestWithParam<std::string> {};

// Goal: the oracle itself is right, and with it everything that equals it: the first step from zero
// moments. Method: by hand. w = 1, g = 0.5, lr = 0.1, decay 0.01, betas 0.9 and 0.999. AdamW: w = 1
// - 0.001, m = 0.05, v = 0.00025, and m / sqrt(v) without bias is the sign of g, so w = 0.999 -
// 0.1. Adam: g = 0.51, so m = 0.051, v = 0.0002601, w = 1 - 0.1.
TEST_P(OptimizerFormula, FirstStepByHand) {
  const bool decoupled = GetParam().ends_with("adamw");
  State state(1, 0);
  state.master[state.first] = 1.0f;
  state.exp_avg[state.first] = 0.0f;
  state.exp_avg_sq[state.first] = 0.0f;
  state.set_grad(0, 0.5f);
  const Hyper hyper{.lr = 0.1, .weight_decay = 0.01};
  must_make(GetParam())->update(state.view(DType::kFloat32, false, 0, 1), hyper, 1.0f, 1);
  EXPECT_NEAR(state.master[state.first], decoupled ? 0.899 : 0.9, 2e-7);
  EXPECT_NEAR(state.exp_avg[state.first], decoupled ? 0.05 : 0.051, 1e-8);
  EXPECT_NEAR(state.exp_avg_sq[state.first], decoupled ? 0.00025 : 0.0002601, 1e-10);
}

// Goal: the formula is Adam's over many steps, for betas on both sides of the lerp's switch.
// Method: the textbook in double with the same gradients; fp32 may drift by rounding only.
TEST_P(OptimizerFormula, StaysCloseToDoublePrecision) {
  const bool decoupled = GetParam().ends_with("adamw");
  for (double beta1 : {0.0, 0.3, 0.5, 0.9}) {
    const Hyper hyper{.lr = 1e-3, .beta1 = beta1, .beta2 = 0.99, .weight_decay = 0.1};
    State state(1, 0);
    state.master[state.first] = 0.75f;
    state.exp_avg[state.first] = 0.0f;
    state.exp_avg_sq[state.first] = 0.0f;
    Reference reference{0.75};
    std::mt19937 random(4);
    std::normal_distribution<float> normal(0.2f, 1.0f);
    for (uint64_t step = 1; step <= 300; ++step) {
      const float grad = normal(random);
      state.set_grad(0, grad);
      must_make(GetParam())->update(state.view(DType::kFloat32, false, 0, 1), hyper, 0.5f, step);
      reference.update(0.5 * static_cast<double>(grad), hyper, decoupled,
                       static_cast<double>(step));
      ASSERT_NEAR(state.master[state.first], reference.weight, 2e-5)
          << "beta1 " << beta1 << " step " << step;
      ASSERT_NEAR(state.exp_avg[state.first], reference.exp_avg, 1e-6);
      ASSERT_NEAR(state.exp_avg_sq[state.first], reference.exp_avg_sq, 1e-6);
    }
  }
}

// Goal: without learning rate and decay the weights keep their bits, while the moments move.
// Method: one such step on random values.
TEST_P(OptimizerFormula, NoLearningRateKeepsTheWeights) {
  const State before = random_state(100, 0, 6);
  State after = before;
  must_make(GetParam())
      ->update(after.view(DType::kFloat32, false, 0, 100), Hyper{.lr = 0.0}, 1.0f, 1);
  ASSERT_NO_FATAL_FAILURE(expect_same_bits(before.master, after.master, "master"));
  EXPECT_NE(before.exp_avg, after.exp_avg);
  EXPECT_NE(before.exp_avg_sq, after.exp_avg_sq);
}

// Goal: a NaN or Inf gradient poisons its own element, with the one canonical NaN, and no other.
// Method: one bad element among good ones.
TEST_P(OptimizerFormula, ABadGradientPoisonsItsElementOnly) {
  for (float bad : {kNan, -kNan, kInf, -kInf}) {
    State state = random_state(33, 0, 6);
    state.set_grad(20, bad);
    must_make(GetParam())->update(state.view(DType::kFloat32, true, 0, 33), Hyper{}, 1.0f, 1);
    for (size_t i = 0; i < 33; ++i) {
      const float weight = state.master[state.first + i];
      ASSERT_EQ(std::isnan(weight), i == 20) << i;
      if (i == 20) {
        EXPECT_EQ(std::bit_cast<uint32_t>(weight), 0x7fc00000u);
        EXPECT_EQ(state.param[state.first + i], 0x7fc0u);
      }
    }
  }
}

std::vector<std::string> all_optimizers() {
  std::vector<std::string> names;
  for (std::string_view name : optimizer_names()) names.emplace_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, OptimizerFormula, testing::ValuesIn(all_optimizers()),
                         [](const auto& info) { return info.param; });

// Goal: a wrong name is an error that tells the right ones.
// Method: ask for one.
TEST(OptimizerTable, AnUnknownNameListsTheKnownOnes) {
  const auto made = make_optimizer("sgd");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  EXPECT_NE(made.status().message().find("'sgd'"), std::string::npos);
  for (std::string_view name : optimizer_names()) {
    EXPECT_NE(made.status().message().find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace zoffload
