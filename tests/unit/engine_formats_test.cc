#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/engine_tasks.h"

namespace zoffload {
namespace {

constexpr Placement kMixed{0.3, 0.4, 0.3};
constexpr Placement kPlaces[] = {kHost, kNvme, kHbm, kMixed};

class InEveryFormat : public testing::TestWithParam<std::tuple<std::string_view, DType>> {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }
  StateFormat format() const { return state_format_named(std::get<0>(GetParam())).value(); }
  bool has_master() const { return dtype() == DType::kBFloat16; }
  Role truth() const { return has_master() ? Role::kMaster : Role::kParam; }

  RigOptions options(Placement place) const {
    RigOptions options = options_for(1, dtype(), place, place);
    options.plan.subgroup_bytes = 1;  // the smallest
    options.model[0].format = format();
    return options;
  }
  template <typename T = float>
  std::vector<T> read(Rig& rig, ParamId param, Role role) {
    std::vector<T> values(rig[0].layout().params[param].numel);
    EXPECT_TRUE(rig.run(rig[0].engine().read_state(param, role, bytes_of(values))).ok());
    return values;
  }
  template <typename T>
  void write(Rig& rig, ParamId param, Role role, std::vector<T> values) {
    EXPECT_TRUE(rig.run(rig[0].engine().write_state(param, role, bytes_of(values))).ok());
  }
  // Between 1 and 3, not representable in bf16.
  std::vector<float> ramp(Rig& rig, ParamId param) {
    std::vector<float> values(rig[0].layout().params[param].numel);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i) / 4096.0f;
    return values;
  }
};

// Goal: users read and write fp32, whatever is stored: masters come back exactly, moments as
// exactly as the format holds them, and what was read is written without a further change; the
// neighbour, in the same subgroup, stays. Method: a ramp to each role, on every tier.
TEST_P(InEveryFormat, StateRoundTrips) {
  for (const Placement& place : kPlaces) {
    Rig rig(options(place));
    const std::vector<float> values = ramp(rig, 0);
    write(rig, 0, truth(), values);
    EXPECT_EQ(read(rig, 0, truth()), values);
    EXPECT_EQ(read(rig, 1, truth()), std::vector<float>(50));
    for (Role role : {Role::kExpAvg, Role::kExpAvgSq}) {
      write(rig, 1, role, std::vector<float>(50, 7.0f));
      write(rig, 0, role, values);
      const std::vector<float> back = read(rig, 0, role);
      const float error = format().moments == MomentFormat::kFloat32 ? 0.0f : 0.02f;
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(back[i], values[i], error) << i;
      write(rig, 0, role, back);
      EXPECT_EQ(read(rig, 0, role), back) << role_name(role);
      const std::vector<float> neighbour = read(rig, 1, role);
      for (float value : neighbour) EXPECT_NEAR(value, 7.0f, 1e-4f);
    }
    EXPECT_EQ(read(rig, 0, truth()), values);
  }
}

// Goal: a bf16 weight and its master are one truth: each follows what is written to the other, and
// what is written into a gathered bucket. Method: write the master, read the weight through the
// home and through a gather; write the weight, read the master; write back 2.
using InEveryFormatOfBf16 = InEveryFormat;
TEST_P(InEveryFormatOfBf16, WeightsFollowTheirMaster) {
  for (const Placement& place : kPlaces) {
    Rig rig(options(place));
    const std::vector<float> values = ramp(rig, 0);
    write(rig, 0, Role::kMaster, values);
    const std::vector<uint16_t> weights = read<uint16_t>(rig, 0, Role::kParam);
    const bool half_up = format().master == MasterFormat::kSplit;
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t up =
          static_cast<uint16_t>((std::bit_cast<uint32_t>(values[i]) + 0x8000) >> 16);
      ASSERT_EQ(weights[i], half_up ? up : bf16_from_float(values[i])) << i;
    }
    std::vector<uint16_t> gathered;
    EXPECT_TRUE(rig.run(copy_param(rig[0], 0, gathered)).ok());
    EXPECT_EQ(gathered, weights);

    write(rig, 0, Role::kParam, std::vector<uint16_t>(values.size(), bf16_from_float(3.0f)));
    EXPECT_EQ(read(rig, 0, Role::kMaster), std::vector<float>(values.size(), 3.0f));
    write(rig, 0, Role::kMaster, values);
    EXPECT_TRUE(rig.run(initialise(rig[0], 0, 2.0f)).ok());
    EXPECT_EQ(read(rig, 0, Role::kMaster), std::vector<float>(values.size(), 2.0f));
  }
}

// Goal: steps end with the same bits on every tier and for every cut into subgroups, and change
// nothing of a parameter without a gradient. Method: some steps from odd state, on each tier, and
// with large subgroups; compare all of the state.
TEST_P(InEveryFormat, SameBitsOnEveryTierAndCut) {
  const auto train = [this](Placement place, uint64_t subgroup_bytes) {
    RigOptions with = options(place);
    with.plan.subgroup_bytes = subgroup_bytes;
    Rig rig(with);
    EXPECT_TRUE(rig.run(initialise(rig[0], 0, 2.0f)).ok());
    const std::vector<float> values = ramp(rig, 0);
    write(rig, 0, truth(), values);
    StepReport report;
    for (float gradient : {0.5f, -0.25f, 0.001f}) {
      EXPECT_TRUE(rig.run(step_with(rig[0], gradient, {1}, report)).ok());
    }
    EXPECT_EQ(read(rig, 0, truth()), values);
    EXPECT_EQ(read(rig, 0, Role::kExpAvg), std::vector<float>(values.size()));
    for (float gradient : {0.3f, -0.1f, 0.7f}) {
      EXPECT_TRUE(rig.run(step_with(rig[0], gradient, {0, 1}, report)).ok());
    }
    std::vector<std::vector<float>> all;
    for (ParamId param : {0u, 1u}) {
      for (Role role : {truth(), Role::kExpAvg, Role::kExpAvgSq}) {
        all.push_back(read(rig, param, role));
      }
    }
    EXPECT_NE(all[0], values);
    return all;
  };
  const auto expected = train(kHost, 1);
  for (const Placement& place : kPlaces) {
    for (uint64_t subgroup_bytes : {1, 1 << 20}) {
      EXPECT_TRUE(train(place, subgroup_bytes) == expected);
    }
  }
}

// Goal: level 1: the user's bf16 weight is one half of a split master, and changes with it; any
// other weight in place is left alone. Method: write the master, look at the user's memory.
TEST_P(InEveryFormat, InPlace) {
  RigOptions with = options(kNvme);
  std::vector<std::byte> user((kNormChunk + 100) * dtype_bytes(dtype()), std::byte{0x3f});
  const std::vector<std::byte> before = user;
  with.model[0].in_place = true;
  with.model[0].params = {{"w", kNormChunk + 100, 0, HostSpan(user)}};
  Rig rig(with);
  if (!has_master()) {
    const std::vector<float> values = ramp(rig, 0);
    write(rig, 0, Role::kParam, values);
    EXPECT_TRUE(std::ranges::equal(elements<float>(HostSpan(user)), values));
    return;
  }
  EXPECT_TRUE(rig.run(rig[0].engine().write_state(0, Role::kParam, user)).ok());
  const float weight = float_from_bf16(0x3f3f);
  EXPECT_EQ(read(rig, 0, Role::kMaster), std::vector<float>(kNormChunk + 100, weight));
  const std::vector<float> values = ramp(rig, 0);
  write(rig, 0, Role::kMaster, values);
  EXPECT_EQ(read(rig, 0, Role::kMaster), values);
  EXPECT_EQ(user == before, format().master == MasterFormat::kFloat32);
}

std::string test_name(const testing::TestParamInfo<InEveryFormat::ParamType>& info) {
  std::string name(std::get<0>(info.param));
  std::replace(name.begin(), name.end(), '+', '_');
  return name + "_" + dtype_name(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Formats, InEveryFormat,
                         testing::Combine(testing::ValuesIn(state_format_names()),
                                          testing::Values(DType::kBFloat16, DType::kFloat32)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Formats, InEveryFormatOfBf16,
                         testing::Combine(testing::ValuesIn(state_format_names()),
                                          testing::Values(DType::kBFloat16)),
                         test_name);

// Goal: buckets of different formats live in one engine. Method: three buckets, one step of each.
TEST(Formats, BucketsOfDifferentFormats) {
  RigOptions options = options_for(3, DType::kBFloat16, kNvme, kNvme);
  options.model[1].format = state_format_named("split+bf16").value();
  options.model[2].format = state_format_named("int8").value();
  Rig rig(options);
  StepReport report;
  for (BucketId bucket = 0; bucket < 3; ++bucket) {
    ASSERT_TRUE(rig.run(initialise(rig[0], bucket, 1.0f)).ok());
    ASSERT_TRUE(rig.run(rig[0].give(bucket, 0.5f, {2 * bucket, 2 * bucket + 1})).ok());
  }
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  ASSERT_TRUE(rig.run(rig[0].engine().settle()).ok());
  EXPECT_EQ(report.updated_params, 6u);
  for (BucketId bucket = 0; bucket < 3; ++bucket) {
    std::vector<float> exp_avg(50), master(50);
    ASSERT_TRUE(
        rig.run(rig[0].engine().read_state(2 * bucket + 1, Role::kExpAvg, bytes_of(exp_avg))).ok());
    ASSERT_TRUE(
        rig.run(rig[0].engine().read_state(2 * bucket + 1, Role::kMaster, bytes_of(master))).ok());
    for (size_t i = 0; i < 50; ++i) {
      EXPECT_NEAR(exp_avg[i], 0.05f, 0.001f) << bucket;
      EXPECT_NEAR(master[i], 0.899f, 0.002f) << bucket;
    }
  }
}

}  // namespace
}  // namespace zoffload
