// Every optimizer of the table, on every instruction set of this CPU, with every dtype, against its
// scalar oracle, bit for bit. optimizer_formula_test.cc is about the oracles themselves.
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

// The view as this optimizer takes it: without the moments that it does not keep.
UpdateView kept_by(const Optimizer& optimizer, UpdateView view) {
  if (!optimizer.moments().exp_avg) view.exp_avg = {};
  if (!optimizer.moments().exp_avg_sq) view.exp_avg_sq = {};
  return view;
}

// Settings of which every optimizer finds its own, none of them trivial.
constexpr Hyper kHyper{
    .lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9, .dampening = 0.1, .lr_decay = 0.01};

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
    return kept_by(*optimizer_,
                   state.view(std::get<2>(GetParam()), std::get<3>(GetParam()), from, count));
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
  std::vector<size_t> sizes{1023};
  for (size_t size = 0; size <= 35; ++size) sizes.push_back(size);
  for (size_t numel : sizes) {
    for (size_t offset : {0, 1, 3}) {
      SCOPED_TRACE(testing::Message() << numel << " elements from " << offset);
      ASSERT_NO_FATAL_FAILURE(compare(random_state(numel, offset, 1), kHyper, 0.5f, 3));
    }
  }
}

// Goal: the oracle's bits on denormals, on the largest numbers, on NaN and Inf, and at the edges of
// the settings. Method: every combination of awkward values, under every awkward setting and step.
TEST_P(OptimizerConformance, MatchesTheOracleOnExtremeValues) {
  const std::vector<Hyper> hypers = {
      {},
      {.lr = 0.0},
      {.lr = 1.0, .eps = 0.0, .momentum = 1e-30, .nesterov = true, .lr_decay = 1e6},
      {.lr = 0.1, .beta1 = 0.0, .beta2 = 0.0, .weight_decay = 0.01, .momentum = 0.9},
      {.lr = 0.1,
       .beta1 = 0.999999,
       .beta2 = 0.999999,
       .weight_decay = 0.5,
       .momentum = 0.999999,
       .dampening = 1.0},
      {.lr = 0.1,
       .beta1 = 0.5,
       .beta2 = 0.95,
       .eps = 1e-30,
       .weight_decay = 1e-4,
       .momentum = 0.5,
       .nesterov = true,
       .lr_decay = 0.1},
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
  const Hyper hyper{.lr = 3e-3,
                    .beta2 = 0.95,
                    .weight_decay = 0.1,
                    .momentum = 0.9,
                    .nesterov = true,
                    .lr_decay = 0.1};
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
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    const State state = random_state(1023, 0, 7);
    State whole = state;
    State pieces = state;
    optimizer_->update(view(whole), kHyper, 1.0f, 4);
    for (size_t from = 0; from < state.numel;) {
      const size_t count = std::min<size_t>(state.numel - from, random() % 70);
      optimizer_->update(view(pieces, from, count), kHyper, 1.0f, 4);
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
  optimizer_->update(view(scaled), kHyper, 0.25f, 2);
  optimizer_->update(view(plain), kHyper, 1.0f, 2);
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

class OptimizerFormula : public testing::TestWithParam<std::string> {};

// Goal: without learning rate and decay the weights keep their bits, while the moments that are
// kept move. Method: one such step on random values.
TEST_P(OptimizerFormula, NoLearningRateKeepsTheWeights) {
  const auto optimizer = must_make(GetParam());
  const State before = random_state(100, 0, 6);
  State after = before;
  optimizer->update(kept_by(*optimizer, after.view(DType::kFloat32, false, 0, 100)),
                    Hyper{.lr = 0.0, .momentum = 0.9}, 1.0f, 1);
  ASSERT_NO_FATAL_FAILURE(expect_same_bits(before.master, after.master, "master"));
  EXPECT_EQ(before.exp_avg != after.exp_avg, optimizer->moments().exp_avg);
  EXPECT_EQ(before.exp_avg_sq != after.exp_avg_sq, optimizer->moments().exp_avg_sq);
}

// Goal: a NaN or Inf gradient poisons its own element, in the weight or in a moment, and no other;
// a NaN is the one canonical one. Method: one bad element among good ones.
TEST_P(OptimizerFormula, ABadGradientPoisonsItsElementOnly) {
  const auto optimizer = must_make(GetParam());
  for (float bad : {kNan, -kNan, kInf, -kInf}) {
    State state = random_state(33, 0, 6);
    state.set_grad(20, bad);
    optimizer->update(kept_by(*optimizer, state.view(DType::kFloat32, true, 0, 33)), Hyper{}, 1.0f,
                      1);
    for (size_t i = 0; i < 33; ++i) {
      const float weight = state.master[state.first + i];
      const bool is_good = std::isfinite(weight) && std::isfinite(state.exp_avg[state.first + i]) &&
                           std::isfinite(state.exp_avg_sq[state.first + i]);
      ASSERT_EQ(is_good, i != 20) << i;
      if (std::isnan(bad)) {
        ASSERT_EQ(std::isnan(weight), i == 20) << i;
      }
      if (std::isnan(weight)) {
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
  const auto made = make_optimizer("muon");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  EXPECT_NE(made.status().message().find("'muon'"), std::string::npos);
  for (std::string_view name : optimizer_names()) {
    EXPECT_NE(made.status().message().find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace zoffload
