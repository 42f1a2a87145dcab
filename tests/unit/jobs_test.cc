#include "core/engine/jobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/bf16.h"
#include "core/sim/random.h"
#include "optim/gradient_math.h"
#include "optim/optimizers.h"

namespace zoffload {
namespace {

template <typename T>
HostSpan bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

std::vector<float> random_floats(uint64_t numel, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(numel);
  for (float& value : values) {
    value = static_cast<float>(static_cast<double>(random.next() >> 40) * 0x1.0p-20 - 8.0);
  }
  return values;
}

constexpr uint64_t kChunks = 6;

// The sums per chunk of a shard of kChunks chunks that is cut into subgroups of `cut` chunks, with
// parameters [0, 5000) and [5024, end), as GradientJobs measure them.
std::vector<double> measured(std::vector<float>& gradients, uint64_t cut) {
  BucketSpec bucket;
  bucket.params = {{"a", 5000, 0, {}}, {"b", kChunks * kNormChunk - 5024, 0, {}}};
  const Layout layout = make_layout({bucket}, 0, 1, cut * kNormChunk);
  const ScalarGradientMath math;
  std::vector<double> all;
  for (const SubgroupLayout& subgroup : layout.subgroups) {
    std::vector<double> sums(subgroup.numel / kNormChunk, 1e300);  // replaced, not added to
    GradientJob job(math, DType::kFloat32, DType::kFloat32, sums);
    for (const Segment& segment : subgroup.segments) {
      const HostSpan home =
          bytes_of(gradients).subspan((subgroup.begin + segment.begin) * 4, segment.numel * 4);
      job.add({{}, home, segment.begin, false});
    }
    EXPECT_FALSE(job.empty());
    job.run();
    all.insert(all.end(), sums.begin(), sums.end());
  }
  return all;
}

// Goal: the norm does not depend on how a shard is cut. Method: the same gradients in subgroups of
// one, two and six chunks, a parameter's border inside a chunk; equal to the last bit, and right.
TEST(GradientJob, SumsDoNotDependOnTheCut) {
  std::vector<float> gradients = random_floats(kChunks * kNormChunk, 1);
  const std::vector<double> expected = measured(gradients, 1);
  ASSERT_EQ(expected.size(), kChunks);
  EXPECT_EQ(measured(gradients, 2), expected);
  EXPECT_EQ(measured(gradients, kChunks), expected);
  for (uint64_t chunk = 0; chunk < kChunks; ++chunk) {
    double sum = 0;
    for (uint64_t i = chunk * kNormChunk; i < (chunk + 1) * kNormChunk; ++i) {
      if (i >= 5000 && i < 5024) continue;  // padding
      sum += static_cast<double>(gradients[i]) * gradients[i];
    }
    EXPECT_NEAR(expected[chunk], sum, sum * 1e-12) << chunk;
  }
}

// Goal: the first gradient of a step replaces what the home held, later ones add to it, and what
// got none now is only measured. Method: three pieces, one of each sort, from bf16 to fp32.
TEST(GradientJob, AssignsThenAccumulates) {
  std::vector<uint16_t> from(4, bf16_from_float(2.0f));
  std::vector<float> home(12, 5.0f);
  std::vector<double> sums(1);
  const ScalarGradientMath math;
  GradientJob job(math, DType::kBFloat16, DType::kFloat32, sums);
  EXPECT_TRUE(job.empty());
  const HostSpan all = bytes_of(home);
  job.add({bytes_of(from), all.subspan(0, 16), 0, true});
  job.add({bytes_of(from), all.subspan(16, 16), 4, false});
  job.add({{}, all.subspan(32, 16), 8, false});
  job.run();
  EXPECT_EQ(home, (std::vector<float>{2, 2, 2, 2, 7, 7, 7, 7, 5, 5, 5, 5}));
  EXPECT_EQ(sums[0], 4 * (4.0 + 49.0 + 25.0));
}

// Goal: an update steps the pieces it was given and no other element. Method: two pieces with a
// gap, against the optimizer itself.
TEST(UpdateJob, StepsItsPieces) {
  const std::unique_ptr<Optimizer> adam = std::move(*make_optimizer("scalar_adamw"));
  const Hyper hyper{0.1, 0.9, 0.99, 1e-8, 0.1};
  std::vector<float> master = random_floats(12, 2), grad = random_floats(12, 3);
  std::vector<float> exp_avg(12), exp_avg_sq(12);
  std::vector<float> expected = master, expected_avg(12), expected_avg_sq(12);
  const auto view = [&grad](std::vector<float>& w, std::vector<float>& m, std::vector<float>& v,
                            size_t begin) {
    UpdateView view;
    view.master = std::span(w).subspan(begin, 4);
    view.exp_avg = std::span(m).subspan(begin, 4);
    view.exp_avg_sq = std::span(v).subspan(begin, 4);
    view.grad = bytes_of(grad).subspan(begin * 4, 16);
    return view;
  };
  UpdateJob job(*adam, 0.5f);
  job.add({view(master, exp_avg, exp_avg_sq, 0), hyper, 1});
  job.add({view(master, exp_avg, exp_avg_sq, 8), hyper, 7});
  job.run();
  adam->update(view(expected, expected_avg, expected_avg_sq, 0), hyper, 0.5f, 1);
  adam->update(view(expected, expected_avg, expected_avg_sq, 8), hyper, 0.5f, 7);
  EXPECT_EQ(master, expected);
  EXPECT_EQ(exp_avg, expected_avg);
  EXPECT_EQ(exp_avg_sq, expected_avg_sq);
}

// Goal: a parameter that was not loaded is rounded from its master before the pieces step, so that
// what does not step is right too. Method: garbage, one piece in front.
TEST(UpdateJob, RefreshesTheWholeParameterFirst) {
  const std::unique_ptr<Optimizer> adam = std::move(*make_optimizer("scalar_adamw"));
  const ScalarGradientMath math;
  std::vector<float> master = {1, 2, 3, 4}, exp_avg(4), exp_avg_sq(4), grad(4, 1.0f);
  std::vector<uint16_t> param(4, 0xdead);
  UpdateJob job(*adam, 1);
  job.refresh(math, bytes_of(master), bytes_of(param));
  UpdateView view;
  view.master = std::span(master).first(2);
  view.exp_avg = std::span(exp_avg).first(2);
  view.exp_avg_sq = std::span(exp_avg_sq).first(2);
  view.param = std::span(param).first(2);
  view.grad = bytes_of(grad).first(8);
  job.add({view, Hyper{0.5, 0.9, 0.99, 1e-8, 0}, 1});
  job.run();
  EXPECT_NE(master[0], 1);
  EXPECT_EQ(master[2], 3);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(param[i], bf16_from_float(master[i])) << i;
}

}  // namespace
}  // namespace zoffload
