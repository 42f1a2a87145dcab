// The update's memory, the passes over it, and the memory-bound kernel beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/memory_bound.h"
#include "bench/update_rig.h"
#include "core/plan/layout.h"
#include "optim/gradient_math.h"
#include "optim/optimizers.h"
#include "optim/tbb_workers.h"

namespace zoffload::bench {
namespace {

// Three subgroups, the last one shorter than the others.
UpdateSetup three_subgroups(DType dtype) {
  UpdateSetup setup;
  setup.numel = 20'001;
  setup.dtype = dtype;
  setup.subgroup_bytes = 100'000;  // 8192 elements, rounded down to chunks of the norm
  return setup;
}

std::vector<float> floats(const MomentView& moment) {
  const auto values = elements<float>(moment.values);
  return {values.begin(), values.end()};
}

struct State {
  std::vector<float> master, exp_avg, exp_avg_sq;
  std::vector<uint16_t> param;
  std::vector<std::byte> grad;
  DType grad_dtype;

  explicit State(const UpdateView& view)
      : master(view.master.begin(), view.master.end()),
        exp_avg(floats(view.exp_avg)),
        exp_avg_sq(floats(view.exp_avg_sq)),
        param(view.param.begin(), view.param.end()),
        grad(view.grad.begin(), view.grad.end()),
        grad_dtype(view.grad_dtype) {}
  UpdateView view() {
    return {master, std::span(exp_avg), std::span(exp_avg_sq), param, grad, grad_dtype};
  }
};

template <typename T>
bool same_bits(std::span<const T> left, std::span<const T> right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size_bytes()) == 0;
}

bool same_state(const State& left, const State& right) {
  return same_bits<float>(left.master, right.master) &&
         same_bits<float>(left.exp_avg, right.exp_avg) &&
         same_bits<float>(left.exp_avg_sq, right.exp_avg_sq);
}

std::vector<State> states_of(const UpdateRig& rig) {
  return {rig.views().begin(), rig.views().end()};
}

std::unique_ptr<UpdateRig> must_open(const UpdateSetup& setup) {
  auto rig = UpdateRig::open(setup);
  EXPECT_TRUE(rig.ok()) << rig.status().to_string();
  return std::move(*rig);
}

class UpdateRigTest : public testing::TestWithParam<DType> {
 protected:
  TbbWorkers workers_{3};
};

// Goal: what is timed is the whole update: every element once, with rising step numbers. Method:
// two passes against the scalar oracle on a copy, bit for bit.
TEST_P(UpdateRigTest, UpdatesEveryElementOnce) {
  const auto rig = must_open(three_subgroups(GetParam()));
  ASSERT_EQ(rig->subgroup_count(), 3u);
  std::vector<State> expected = states_of(*rig);
  const auto optimizer = std::move(*make_optimizer("adamw"));
  const auto oracle = std::move(*make_optimizer("scalar_adamw"));
  for (uint64_t step : {1, 2}) {
    const auto pass = rig->update(*optimizer, workers_);
    ASSERT_TRUE(pass.ok());
    EXPECT_EQ(pass->numel, 20'001u);
    EXPECT_GT(pass->numel_per_s(), 0);
    for (State& state : expected) oracle->update(state.view(), Hyper{}, 1.0f, step);
  }
  const std::vector<State> found = states_of(*rig);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(same_state(found[i], expected[i])) << "subgroup " << i;
    EXPECT_EQ(found[i].param, expected[i].param) << "subgroup " << i;
  }
}

// Goal: with the norm, all gradients are summed before the first is used, and then scaled. Method:
// the oracle on a copy with the scale that the scalar sums give.
TEST_P(UpdateRigTest, NormScalesTheGradients) {
  const auto rig = must_open(three_subgroups(GetParam()));
  std::vector<State> expected = states_of(*rig);
  const ScalarGradientMath math;
  double sum = 0;
  for (const State& state : expected) {
    const uint64_t chunk = kNormChunk * dtype_bytes(state.grad_dtype);
    double part = 0;
    for (uint64_t at = 0; at < state.grad.size(); at += chunk) {
      const uint64_t bytes = std::min<uint64_t>(chunk, state.grad.size() - at);
      part += math.sum_of_squares(ConstHostSpan(state.grad).subspan(at, bytes), state.grad_dtype);
    }
    sum += part;
  }
  ASSERT_GT(sum, 1);
  const auto optimizer = std::move(*make_optimizer("adamw"));
  const auto oracle = std::move(*make_optimizer("scalar_adamw"));
  const HighwayGradientMath vectors;
  const auto pass = rig->update(*optimizer, workers_, {}, &vectors);
  ASSERT_TRUE(pass.ok());
  EXPECT_EQ(pass->numel, 20'001u);
  const auto scale = static_cast<float>(1 / std::sqrt(sum));
  for (State& state : expected) oracle->update(state.view(), Hyper{}, scale, 1);
  const std::vector<State> found = states_of(*rig);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(same_state(found[i], expected[i])) << "subgroup " << i;
  }
  const auto stream = rig->stream(workers_, {}, true);
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(stream->numel, 20'001u);
}

// Goal: a pass that is stopped before it begins has updated nothing. Method: with the norm, and
// without.
TEST_P(UpdateRigTest, StoppedBeforeTheUpdate) {
  const auto rig = must_open(three_subgroups(GetParam()));
  const auto optimizer = std::move(*make_optimizer("adamw"));
  const HighwayGradientMath math;
  const Stopped now = [] { return true; };
  for (const GradientMath* norm :
       {static_cast<const GradientMath*>(nullptr), static_cast<const GradientMath*>(&math)}) {
    const auto pass = rig->update(*optimizer, workers_, now, norm);
    ASSERT_TRUE(pass.ok());
    EXPECT_EQ(pass->numel, 0u);
  }
}

// Goal: the memory-bound pass touches all that an update touches, and changes no state, so that
// both can alternate on the same bytes. Method: bits before and after; each weight in bf16, which
// is only written, is zero.
TEST_P(UpdateRigTest, StreamChangesNoState) {
  const auto rig = must_open(three_subgroups(GetParam()));
  const auto optimizer = std::move(*make_optimizer("adamw"));
  ASSERT_TRUE(rig->update(*optimizer, workers_).ok());
  const std::vector<State> before = states_of(*rig);
  const auto pass = rig->stream(workers_);
  ASSERT_TRUE(pass.ok());
  EXPECT_EQ(pass->numel, 20'001u);
  const std::vector<State> after = states_of(*rig);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(same_state(after[i], before[i])) << "subgroup " << i;
    for (const uint16_t weight : after[i].param) ASSERT_EQ(weight, 0);
  }
}

// Goal: gradients differ from each other and from the weights, so that nothing compresses. Method:
// how many different values there are.
TEST_P(UpdateRigTest, DataIsRandom) {
  const auto rig = must_open(three_subgroups(GetParam()));
  const State state(rig->views()[0]);
  std::vector<float> values = state.master;
  std::sort(values.begin(), values.end());
  const auto end = std::unique(values.begin(), values.end());
  EXPECT_GT(end - values.begin(), 8000);
  EXPECT_LT(values.front(), -0.1f);
  EXPECT_GT(*(end - 1), 0.1f);
  const State next(rig->views()[1]);
  EXPECT_NE(state.master[0], next.master[0]);
  EXPECT_NE(state.grad, next.grad);
}

INSTANTIATE_TEST_SUITE_P(DTypes, UpdateRigTest, testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// Goal: what cannot fit is refused before it is taken, with what to do. Method: a million billion.
TEST(UpdateRig, RefusesWhatDoesNotFit) {
  UpdateSetup setup;
  setup.numel = uint64_t{1} << 50;
  const auto rig = UpdateRig::open(setup);
  ASSERT_FALSE(rig.ok());
  EXPECT_EQ(rig.status().code(), Code::kOutOfMemory);
  EXPECT_NE(rig.status().message().find("give a smaller --numel"), std::string::npos);
}

// Goal: the traffic of an element: the state twice, the gradient, and the weights, which a split
// master reads too. Method: the sums by hand.
TEST(MemoryBound, BytesOfAnUpdate) {
  const auto bytes = [](DType dtype, const char* format, MomentSet moments = {}) {
    return update_stream_bytes(dtype, *state_format_named(format), moments);
  };
  EXPECT_EQ(bytes(DType::kBFloat16, "fp32"), 2 * 12 + 2 + 2);
  EXPECT_EQ(bytes(DType::kFloat32, "fp32"), 2 * 12 + 4);
  EXPECT_EQ(bytes(DType::kBFloat16, "split"), 2 * 10 + 2 + 4);
  EXPECT_EQ(bytes(DType::kFloat32, "split"), 2 * 12 + 4);
  EXPECT_EQ(bytes(DType::kBFloat16, "split+bf16"), 2 * 6 + 2 + 4);
  EXPECT_EQ(bytes(DType::kBFloat16, "int8"), 2 * (4 + 2 + 2.0 * 4 / 128) + 2 + 2);
  EXPECT_EQ(bytes(DType::kBFloat16, "bf16", {true, false}), 2 * (4 + 2) + 2 + 2);
}

// Goal: every format's rig steps as the oracle does, and its bound leaves the state alone. Method:
// the same rig twice, one with the kernel, one with the oracle; the bound between two steps.
TEST(UpdateRig, EveryFormat) {
  const auto optimizer = make_optimizer("adamw");
  const auto oracle = make_optimizer("scalar_adamw");
  ASSERT_TRUE(optimizer.ok());
  ASSERT_TRUE(oracle.ok());
  TbbWorkers workers(2);
  for (const std::string_view name : state_format_names()) {
    UpdateSetup setup = three_subgroups(DType::kBFloat16);
    setup.format = *state_format_named(name);
    auto rig = UpdateRig::open(setup);
    auto model = UpdateRig::open(setup);
    ASSERT_TRUE(rig.ok()) << rig.status().to_string();
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE((*rig)->update(**optimizer, workers).ok());
      ASSERT_TRUE((*model)->update(**oracle, workers).ok());
      for (size_t i = 0; i < (*rig)->subgroup_count(); ++i) {
        const UpdateView& got = (*rig)->views()[i];
        const UpdateView& expected = (*model)->views()[i];
        const auto same = [](ConstHostSpan left, ConstHostSpan right) {
          return std::ranges::equal(left, right);
        };
        EXPECT_TRUE(same(std::as_bytes(got.master), std::as_bytes(expected.master))) << name;
        EXPECT_TRUE(same(std::as_bytes(got.residual), std::as_bytes(expected.residual))) << name;
        EXPECT_TRUE(same(std::as_bytes(got.param), std::as_bytes(expected.param))) << name;
        EXPECT_TRUE(same(got.exp_avg.values, expected.exp_avg.values)) << name;
        EXPECT_TRUE(same(got.exp_avg_sq.values, expected.exp_avg_sq.values)) << name;
      }
      ASSERT_TRUE((*rig)->stream(workers).ok());
    }
  }
}

// Goal: one sample per repeat, none after a stop. Method: count them.
TEST(MemoryBound, CopySamples) {
  TbbWorkers workers(2);
  const auto samples = measure_memory_copy(9 << 20, 3, workers);
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ(samples->values.size(), 3u);
  EXPECT_GT(samples->min(), 0);
  const auto none = measure_memory_copy(9 << 20, 3, workers, [] { return true; });
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

}  // namespace
}  // namespace zoffload::bench
