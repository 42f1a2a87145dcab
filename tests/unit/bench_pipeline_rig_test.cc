// The rig drives the real engine, on a real folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "bench/pipeline_rig.h"
#include "core/base/bf16.h"
#include "optim/optimizers.h"

namespace zoffload::bench {
namespace {

namespace fs = std::filesystem;

const ModelShape kShape = {{{"a", 100'000}, {"b", 3}, {"c", 50'001}}};

class PipelineRigTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "pipeline_rig_XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(root_); }

  OpenRequest request(const std::string& placement) {
    OpenRequest request;
    request.model = buckets_of(kShape, GetParam(), StateFormat());
    request.plan.optimizer = *parse_placement(placement);
    request.plan.params.host = 1;
    request.plan.subgroup_bytes = 200'000;
    request.threads = 2;
    request.nvme_paths = {root_};
    request.io_block_bytes = 64 << 10;
    return request;
  }

  std::unique_ptr<UserModel> model() {
    auto model = UserModel::make(kShape, GetParam(), StateFormat(), 1);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    return std::move(*model);
  }

  std::string root_;
};

// One parameter, trained by the scalar oracle with no tiers.
std::vector<std::byte> trained(ConstHostSpan weights, ConstHostSpan gradient, DType dtype,
                               uint64_t steps) {
  std::vector<std::byte> result(weights.begin(), weights.end());
  std::vector<float> master;
  std::span<uint16_t> param;
  if (dtype == DType::kFloat32) {
    const auto values = elements<float>(weights);
    master.assign(values.begin(), values.end());
  } else {
    param = elements<uint16_t>(HostSpan(result));
    for (uint16_t bits : param) master.push_back(float_from_bf16(bits));
  }
  std::vector<float> exp_avg(master.size()), exp_avg_sq(master.size());
  const auto oracle = std::move(*make_optimizer("scalar_adamw"));
  for (uint64_t step = 1; step <= steps; ++step) {
    oracle->update({master, std::span(exp_avg), std::span(exp_avg_sq), param, gradient, dtype},
                   Hyper{}, 1.0f, step);
  }
  if (dtype == DType::kFloat32) std::memcpy(result.data(), master.data(), result.size());
  return result;
}

// Goal: what is timed is a real training step on every tier. Method: two steps; the weights have
// the oracle's bits.
TEST_P(PipelineRigTest, StepsAreRealUpdates) {
  for (const char* placement : {"nvme", "host", "hbm", "nvme:0.5,host:0.5"}) {
    const auto user = model();
    std::vector<std::vector<std::byte>> expected;
    for (const auto& gradient : user->gradients()) {
      const ParamSpec& param = user->buckets()[0].params[gradient.param];
      expected.push_back(trained(param.in_place, gradient.bytes, GetParam(), 2));
    }
    const auto rig = PipelineRig::open(request(placement), *user);
    ASSERT_TRUE(rig.ok()) << rig.status().to_string();
    ASSERT_TRUE((*rig)->prepare().ok());
    for (int step = 0; step < 2; ++step) {
      const auto sample = (*rig)->step();
      ASSERT_TRUE(sample.ok()) << sample.status().to_string();
      EXPECT_GT(sample->seconds, 0);
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      const HostSpan found = user->buckets()[0].params[i].in_place;
      EXPECT_EQ(std::memcmp(found.data(), expected[i].data(), found.size()), 0)
          << placement << ", parameter " << i;
    }
  }
}

// Goal: the write budget is asked for exactly what is written. Method: the engine's counters
// against the cost that was known before it opened, and the files' sizes.
TEST_P(PipelineRigTest, CostIsKnownBefore) {
  for (const char* placement : {"nvme", "nvme:0.5,host:0.5", "host"}) {
    const auto cost = cost_of(request(placement));
    ASSERT_TRUE(cost.ok()) << cost.status().to_string();
    const auto user = model();
    const auto rig = PipelineRig::open(request(placement), *user);
    ASSERT_TRUE(rig.ok()) << rig.status().to_string();
    uint64_t file_bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      if (entry.is_regular_file()) file_bytes += entry.file_size();
    }
    EXPECT_EQ(file_bytes, cost->file_bytes) << placement;

    const auto nvme = static_cast<size_t>(TierKind::kNvme);
    ASSERT_TRUE((*rig)->prepare().ok());
    const auto stats = (*rig)->stats();
    ASSERT_TRUE(stats.ok());
    EXPECT_EQ(stats->stored_bytes[nvme], cost->prepare_bytes) << placement;
    const auto sample = (*rig)->step();
    ASSERT_TRUE(sample.ok());
    EXPECT_EQ(sample->stored_bytes[nvme], cost->step_bytes) << placement;
    EXPECT_EQ(sample->loaded_bytes[nvme], cost->step_bytes) << placement;
  }
}

// Goal: nothing stays behind. Method: look into the folder when the rig is gone.
TEST_P(PipelineRigTest, LeavesNothingBehind) {
  const auto user = model();
  {
    const auto rig = PipelineRig::open(request("nvme"), *user);
    ASSERT_TRUE(rig.ok()) << rig.status().to_string();
    EXPECT_FALSE(fs::is_empty(root_));
    ASSERT_TRUE((*rig)->step().ok());
  }
  EXPECT_TRUE(fs::is_empty(root_));
}

// Goal: errors of the engine arrive. Method: a path that is not there.
TEST_P(PipelineRigTest, ErrorsArrive) {
  const auto user = model();
  OpenRequest wrong = request("nvme");
  wrong.nvme_paths = {root_ + "/none"};
  const auto rig = PipelineRig::open(wrong, *user);
  ASSERT_FALSE(rig.ok());
  EXPECT_NE(rig.status().message().find(root_ + "/none"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(DTypes, PipelineRigTest,
                         testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace zoffload::bench
