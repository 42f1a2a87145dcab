#include "core/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "tests/unit/engine_tasks.h"

namespace zoffload {
namespace {

// Steps without a pause: the next one's gradients come while the last one's updates still read.
Task<Status> steps_in_a_row(RigRank& rank, std::vector<float> gradients,
                            std::vector<ParamId> params) {
  StepReport report;
  for (float gradient : gradients) {
    Status status = co_await rank.give(0, gradient, params);
    ZO_CO_TRY(status);
    status = co_await rank.step(0, report);
    ZO_CO_TRY(status);
  }
  Status status = co_await rank.engine().settle();
  co_return status;
}

class OnEveryTier : public testing::TestWithParam<std::tuple<DType, int, int>> {
 protected:
  static constexpr Placement kPlaces[] = {kHbm, kHost, kNvme, {0.3, 0.4, 0.3}};
  DType dtype() const { return std::get<0>(GetParam()); }
  RigOptions options() const {
    return options_for(1, dtype(), kPlaces[std::get<1>(GetParam())],
                       kPlaces[std::get<2>(GetParam())]);
  }
  std::vector<float> read(Rig& rig, ParamId param, Role role) {
    const uint64_t numel = rig[0].layout().params[param].numel;
    std::vector<float> values(numel);
    if (role == Role::kParam && dtype() == DType::kBFloat16) {
      std::vector<uint16_t> narrow(numel);
      EXPECT_TRUE(rig.run(rig[0].engine().read_state(param, role, bytes_of(narrow))).ok());
      std::transform(narrow.begin(), narrow.end(), values.begin(), float_from_bf16);
    } else {
      EXPECT_TRUE(rig.run(rig[0].engine().read_state(param, role, bytes_of(values))).ok());
    }
    return values;
  }
  std::vector<Role> roles() const {
    if (dtype() == DType::kFloat32) return {Role::kParam, Role::kExpAvg, Role::kExpAvgSq};
    return {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq};
  }
};

// Goal: what is written to a role of a parameter is read back, from every tier and through a
// gather; the weights and their master follow each other; the neighbour's state stays. Method:
// write each role a ramp that bf16 cannot hold.
TEST_P(OnEveryTier, StateRoundTrips) {
  Rig rig(options());
  const uint64_t numel = rig[0].layout().params[0].numel;
  std::vector<float> ramp(numel), rounded(numel);
  for (uint64_t i = 0; i < numel; ++i) {
    ramp[i] = 1.0f + static_cast<float>(i) / 4096.0f;
    rounded[i] = float_from_bf16(bf16_from_float(ramp[i]));
  }
  const bool bf16 = dtype() == DType::kBFloat16;
  for (Role role : roles()) {
    if (bf16 && role == Role::kParam) continue;
    EXPECT_TRUE(rig.run(rig[0].engine().write_state(0, role, bytes_of(ramp))).ok());
    EXPECT_EQ(read(rig, 0, role), ramp) << role_name(role);
    EXPECT_EQ(read(rig, 1, role), std::vector<float>(50)) << role_name(role);
  }
  if (bf16) {
    EXPECT_EQ(read(rig, 0, Role::kParam), rounded);  // the master's write refreshed it
    std::vector<uint16_t> narrow(numel, bf16_from_float(3.0f));
    EXPECT_TRUE(rig.run(rig[0].engine().write_state(0, Role::kParam, bytes_of(narrow))).ok());
    EXPECT_EQ(read(rig, 0, Role::kMaster), std::vector<float>(numel, 3.0f));
    std::vector<uint16_t> gathered;
    EXPECT_TRUE(rig.run(copy_param(rig[0], 0, gathered)).ok());
    EXPECT_EQ(gathered, narrow);
  } else {
    std::vector<float> gathered;
    EXPECT_TRUE(rig.run(copy_param(rig[0], 0, gathered)).ok());
    EXPECT_EQ(gathered, ramp);
  }
  EXPECT_EQ(read(rig, 1, Role::kParam), std::vector<float>(50));
}

// Goal: a parameter without a gradient is not touched, on any tier; one with, is stepped. Method:
// only the small one gets a gradient; its neighbour shares its subgroup.
TEST_P(OnEveryTier, InactiveParametersStay) {
  Rig rig(options());
  std::vector<float> odd(rig[0].layout().params[0].numel, 1.001953125f);  // not a bf16
  EXPECT_TRUE(rig.run(initialise(rig[0], 0, 2.0f)).ok());
  const Role truth = dtype() == DType::kFloat32 ? Role::kParam : Role::kMaster;
  for (Role role : roles()) {
    if (dtype() == DType::kBFloat16 && role == Role::kParam) continue;
    EXPECT_TRUE(rig.run(rig[0].engine().write_state(0, role, bytes_of(odd))).ok());
  }
  std::map<Role, std::vector<float>> before;
  for (Role role : roles()) before[role] = read(rig, 0, role);
  StepReport report;
  ASSERT_TRUE(rig.run(step_with(rig[0], 0.5f, {1}, report)).ok());
  EXPECT_EQ(report.updated_params, 1u);
  EXPECT_NEAR(report.grad_norm, 0.5 * std::sqrt(50.0), 1e-12);
  for (Role role : roles()) EXPECT_EQ(read(rig, 0, role), before[role]) << role_name(role);
  EXPECT_EQ(rig[0].engine().update_count(0), 0u);
  EXPECT_EQ(rig[0].engine().update_count(1), 1u);
  const std::vector<float> stepped = read(rig, 1, truth);
  EXPECT_EQ(stepped, std::vector<float>(50, stepped[0]));
  EXPECT_NEAR(stepped[0], 2.0f * (1 - 0.1f * 0.01f) - 0.1f, 1e-5);  // Adam's first step is lr long
  EXPECT_EQ(read(rig, 1, Role::kParam)[0],
            dtype() == DType::kFloat32 ? stepped[0] : float_from_bf16(bf16_from_float(stepped[0])));
}

INSTANTIATE_TEST_SUITE_P(Tiers, OnEveryTier,
                         testing::Combine(testing::Values(DType::kFloat32, DType::kBFloat16),
                                          testing::Range(0, 4), testing::Range(0, 4)));

// Goal: clipping scales by the global norm; a gradient that is not finite skips the step whole.
// Method: a NaN, then a norm above the limit; compare norm, counts, weights and moments.
TEST(Engine, ClipsAndSkips) {
  Rig rig(options_for(1, DType::kFloat32, kHost, kHost));
  StepReport report;
  ASSERT_TRUE(rig.run(initialise(rig[0], 0, 2.0f)).ok());
  ASSERT_TRUE(
      rig.run(step_with(rig[0], std::numeric_limits<float>::quiet_NaN(), {1}, report)).ok());
  EXPECT_TRUE(report.skipped);
  EXPECT_TRUE(std::isnan(report.grad_norm));
  EXPECT_EQ(report.updated_params, 0u);
  std::vector<float> weights;
  ASSERT_TRUE(rig.run(copy_param(rig[0], 1, weights)).ok());
  EXPECT_EQ(weights, std::vector<float>(50, 2.0f));
  EXPECT_EQ(rig[0].engine().update_count(1), 0u);
  EXPECT_EQ(rig[0].engine().stats().skipped_step_count, 1u);

  ASSERT_TRUE(rig.run(rig[0].give(0, 1.0f, {1})).ok());
  ASSERT_TRUE(rig.run(rig[0].step(0.5, report)).ok());
  ASSERT_TRUE(rig.run(rig[0].engine().settle()).ok());
  EXPECT_FALSE(report.skipped);
  EXPECT_NEAR(report.grad_norm, std::sqrt(50.0), 1e-12);  // before clipping
  std::vector<float> exp_avg(50);
  ASSERT_TRUE(rig.run(rig[0].engine().read_state(1, Role::kExpAvg, bytes_of(exp_avg))).ok());
  EXPECT_NEAR(exp_avg[0], 0.1 * 0.5 / std::sqrt(50.0), 1e-6);

  ASSERT_TRUE(rig.run(rig[0].give(0, 1.0f, {0})).ok());
  ASSERT_TRUE(rig.run(rig[0].step(1000.0, report)).ok());  // below the limit: as it is
  std::vector<float> whole(kNormChunk + 100);
  ASSERT_TRUE(rig.run(rig[0].engine().read_state(0, Role::kExpAvg, bytes_of(whole))).ok());
  EXPECT_NEAR(whole[0], 0.1, 1e-6);
}

// Goal: gradients of several micro-steps add up, those that come in one of them only count too, and
// forgotten ones leave no trace. Method: give, forget, give twice; the norm tells.
TEST(Engine, GradientsAccumulateAndAreForgotten) {
  RigOptions options = options_for(1, DType::kBFloat16, kNvme, kNvme);
  options.plan.micro_steps = 2;
  Rig rig(options);
  ASSERT_TRUE(rig.run(rig[0].give(0, 64.0f, {0, 1})).ok());
  ASSERT_TRUE(rig.run(rig[0].engine().forget_gradients()).ok());
  StepReport report;
  ASSERT_TRUE(rig.run(rig[0].give(0, 1.0f, {0, 1})).ok());
  ASSERT_TRUE(rig.run(rig[0].give(0, 2.0f, {1})).ok());
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  EXPECT_EQ(report.updated_params, 2u);
  EXPECT_NEAR(report.grad_norm, std::sqrt(kNormChunk + 100.0 + 9 * 50.0), 1e-9);
}

// Goal: gradients of the next step wait until the last step's updates have read theirs, and the
// next step waits for its own. Method: two steps in a row on a slow disk; the moments tell.
TEST(Engine, StepsDoNotMixTheirGradients) {
  Rig rig(options_for(1, DType::kFloat32, kNvme, kNvme));
  rig[0].disk().set_faults({.slow = 1.0});
  ASSERT_EQ(rig.run(steps_in_a_row(rig[0], {1.0f, 100.0f}, {0, 1})).to_string(), "ok");
  std::vector<float> exp_avg(50);
  ASSERT_TRUE(rig.run(rig[0].engine().read_state(1, Role::kExpAvg, bytes_of(exp_avg))).ok());
  EXPECT_NEAR(exp_avg[0], 0.9 * 0.1 * 1.0 + 0.1 * 100.0, 1e-4);
  EXPECT_EQ(rig[0].engine().update_count(1), 2u);
}

// Goal: ranks reduce to the mean and end alike. Method: two ranks bring 1 and 3; both see the norm
// of 2, and gather the same weights.
TEST(Engine, RanksStepTogether) {
  RigOptions options = options_for(2, DType::kFloat32, kNvme, kNvme);
  options.plan.world_size = 2;
  Rig rig(options);
  StepReport reports[2];
  std::vector<float> weights[2];
  for (int round = 0; round < 2; ++round) {
    Rig::Run* runs[2];
    for (uint32_t r = 0; r < 2; ++r) {
      runs[r] = &rig.start(r, round == 0 ? step_with(rig[r], r == 0 ? 1 : 3, {0, 1}, reports[r])
                                         : copy_param(rig[r], 0, weights[r]));
    }
    for (Rig::Run* run : runs) EXPECT_TRUE(rig.finish(*run).ok());
  }
  EXPECT_NEAR(reports[0].grad_norm, 2 * std::sqrt(kNormChunk + 150.0), 1e-9);
  EXPECT_EQ(reports[0].grad_norm, reports[1].grad_norm);
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_NE(weights[0][0], 0);
}

}  // namespace
}  // namespace zoffload
