#include "core/engine/state_jobs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/bf16.h"
#include "optim/gradient_math.h"
#include "optim/state_codec.h"

namespace zoffload {
namespace {

template <typename T>
HostSpan bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

class StateJobs : public testing::Test {
 protected:
  void write(Role role, ConstHostSpan from) { WriteStateJob(codec, math, role, view, from).run(); }
  std::vector<float> read(Role role, size_t numel) {
    std::vector<float> to(numel);
    ReadStateJob(codec, role, view, bytes_of(to)).run();
    return to;
  }

  const ScalarStateCodec codec;
  const ScalarGradientMath math;
  UpdateView view;
};

// Two between neighbouring bf16, the second halfway; and what may go wrong.
std::vector<float> odd_values() {
  return {1.001f,
          std::bit_cast<float>(0x3f808000u),
          -3.0f,
          0.0f,
          -0.0f,
          1e-40f,
          std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::max()};
}

// Goal: a split master comes back exactly, its upper half is the weight, and a new weight leaves no
// residual. Method: odd values; then 16-bit weights.
TEST_F(StateJobs, SplitMaster) {
  std::vector<float> values = odd_values();
  std::vector<uint16_t> param(values.size()), residual(values.size(), 0xdead);
  view.param = param;
  view.residual = residual;
  write(Role::kMaster, bytes_of(values));
  const std::vector<float> back = read(Role::kMaster, values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(values[i])) << i;
    EXPECT_EQ(param[i], i == 1 ? 0x3f81u : bf16_from_float(values[i])) << i;
  }
  EXPECT_EQ(bf16_from_float(values[1]), 0x3f80u);  // to the even one; split() goes half up

  std::vector<uint16_t> weights(values.size(), bf16_from_float(2.5f));
  write(Role::kParam, bytes_of(weights));
  EXPECT_EQ(param, weights);
  EXPECT_EQ(read(Role::kMaster, values.size()), std::vector<float>(values.size(), 2.5f));
  std::vector<uint16_t> read_back(values.size());
  ReadStateJob(codec, Role::kParam, view, bytes_of(read_back)).run();
  EXPECT_EQ(read_back, weights);
}

// Goal: a NaN stays one in both halves. Method: one whose payload would carry into its sign; more
// values than the job's piece.
TEST_F(StateJobs, SplitNan) {
  std::vector<float> values(3000, 1.5f);
  values[2999] = std::bit_cast<float>(0x7fffffffu);
  std::vector<uint16_t> param(values.size()), residual(values.size());
  view.param = param;
  view.residual = residual;
  write(Role::kMaster, bytes_of(values));
  EXPECT_TRUE(std::isnan(float_from_bf16(param[2999])));
  const std::vector<float> back = read(Role::kMaster, values.size());
  EXPECT_TRUE(std::isnan(back[2999]));
  EXPECT_EQ(back[2998], 1.5f);
}

// Goal: a master in fp32 and its weight follow each other; without a weight of ours, only the
// master is written. Method: write either, read the other.
TEST_F(StateJobs, FullMaster) {
  std::vector<float> values = {1.001f, -3.0f}, master(2);
  std::vector<uint16_t> param(2), weights = {bf16_from_float(2.0f), bf16_from_float(-4.0f)};
  view.master = master;
  view.param = param;
  write(Role::kMaster, bytes_of(values));
  EXPECT_EQ(read(Role::kMaster, 2), values);
  EXPECT_EQ(param[0], bf16_from_float(1.001f));
  write(Role::kParam, bytes_of(weights));
  EXPECT_EQ(param, weights);
  EXPECT_EQ(master, (std::vector<float>{2.0f, -4.0f}));
  view.param = {};
  write(Role::kMaster, bytes_of(values));
  EXPECT_EQ(master, values);
  EXPECT_EQ(param, weights);
}

// Goal: weights that are not trained, or are fp32, have no master to refresh. Method: write, read.
TEST_F(StateJobs, WeightsAlone) {
  std::vector<uint16_t> param(2), weights = {1, 2};
  view.param = param;
  write(Role::kParam, bytes_of(weights));
  EXPECT_EQ(param, weights);
  std::vector<float> fp32 = {1, 2}, values = {3, 4};
  view.param = {};
  view.master = fp32;
  write(Role::kParam, bytes_of(values));
  EXPECT_EQ(read(Role::kParam, 2), values);
  write(Role::kParam, bytes_of(fp32));  // the very memory, as in place
  EXPECT_EQ(fp32, values);
}

// Goal: moments are converted, each by its own rule. Method: a ramp in each format; what was read
// and is written again is read as the same.
TEST_F(StateJobs, Moments) {
  constexpr size_t kNumel = kMomentBlock + 10;
  std::vector<float> ramp(kNumel);
  for (size_t i = 0; i < kNumel; ++i) ramp[i] = 1.0f + static_cast<float>(i) / 1000;
  for (MomentFormat format :
       {MomentFormat::kFloat32, MomentFormat::kBFloat16, MomentFormat::kInt8}) {
    const bool int8 = format == MomentFormat::kInt8;
    std::vector<std::byte> values(int8 ? kNumel : moment_bytes(format, kNumel));
    std::vector<float> scales(int8 ? 2 : 0);
    view.moments = format;
    for (Role role : {Role::kExpAvg, Role::kExpAvgSq}) {
      MomentView& moment = role == Role::kExpAvg ? view.exp_avg : view.exp_avg_sq;
      moment = MomentView(values, scales);
      write(role, bytes_of(ramp));
      std::vector<float> back = read(role, kNumel);
      const float error = format == MomentFormat::kFloat32 ? 0 : 0.01f;
      for (size_t i = 0; i < kNumel; ++i) EXPECT_NEAR(back[i], ramp[i], error) << i;
      EXPECT_EQ(back == ramp, format == MomentFormat::kFloat32);
      write(role, bytes_of(back));
      EXPECT_EQ(read(role, kNumel), back);
    }
  }
}

}  // namespace
}  // namespace zoffload
