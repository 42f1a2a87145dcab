#include "core/engine/update_views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/sim/sim_device.h"
#include "tiers/host_tier.h"

namespace zoffload {
namespace {

constexpr uint64_t kNumel = kNormChunk + 130;  // of the first parameter: it ends in a short block

// Two parameters over two subgroups, all of it in host memory.
class UpdateViewsTest : public testing::TestWithParam<std::string_view> {
 protected:
  void open(DType dtype, bool in_place, MomentSet moments = {}) {
    user.assign(kNumel * dtype_bytes(dtype), std::byte{0});
    BucketSpec bucket;
    bucket.dtype = dtype;
    bucket.in_place = in_place;
    bucket.format = state_format_named(GetParam()).value();
    bucket.params = {{"w", kNumel, 0, in_place ? HostSpan(user) : HostSpan()}};
    if (!in_place) bucket.params.push_back({"b", 50, 0, {}});
    PlanRequest request;
    request.subgroup_bytes = 1;  // the smallest
    request.params = request.optimizer = {0, 1, 0};
    request.moments = moments;
    plan = std::move(make_plan({bucket}, request).value());
    const HostSpan arena = device.allocate_pinned(plan.arena_bytes() + kPageBytes).value();
    const DeviceSpan gradients = device.allocate_hbm(plan.device_bytes() + kPageBytes).value();
    const uint64_t home_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHost)];
    host.emplace(arena.first(home_bytes));
    swap = std::move(SwapManager::open(plan, Tiers{nullptr, &*host, nullptr},
                                       arena.subspan(home_bytes, plan.arena_bytes() - home_bytes),
                                       gradients.subspan(0, plan.gradient.total_bytes()), failure)
                         .value());
  }
  const BucketLayout& bucket() const { return plan.layout.buckets[0]; }

  SimClock clock;
  SimDevice device{clock, SimDeviceOptions{}, 1, nullptr};
  std::vector<std::byte> user;
  Plan plan;
  Failure failure;
  std::optional<HostTier> host;
  std::unique_ptr<SwapManager> swap;
};

// Goal: the views of a subgroup's segments have the parts that the format stores, of the right
// size, inside their roles' homes, and no byte twice; elements are counted from the parameter's
// start. Method: mark the bytes of each view of both subgroups, in bf16 and fp32.
TEST_P(UpdateViewsTest, SegmentsShareNothing) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    open(dtype, false);
    std::set<std::byte*> seen;
    const auto mark = [&](HostSpan bytes, HostSpan home) {
      for (std::byte& b : bytes) {
        EXPECT_TRUE(seen.insert(&b).second);
        EXPECT_GE(&b, home.data());
        EXPECT_LT(&b, home.data() + home.size());
      }
    };
    for (SubgroupId id : {0u, 1u}) {
      const UpdateBuffer buffer(*swap, id);
      const UpdateViews views(plan.layout, id, buffer);
      for (const Segment& segment : plan.layout.subgroups[id].segments) {
        const UpdateView view = views.of(segment);
        EXPECT_EQ(view.numel(), segment.numel);
        EXPECT_EQ(view.first, segment.begin_in_param);
        EXPECT_EQ(view.seed, param_seed(segment.param == 0 ? "w" : "b"));
        EXPECT_EQ(view.moments, bucket().format.moments);
        EXPECT_EQ(view.param.size(), dtype == DType::kBFloat16 ? segment.numel : 0);
        EXPECT_EQ(view.residual.size(), bucket().split() ? segment.numel : 0);
        EXPECT_EQ(view.master.size(), bucket().split() ? 0 : segment.numel);
        const Role master = bucket().has_master() ? Role::kMaster : Role::kParam;
        mark(std::as_writable_bytes(view.master), buffer.bytes(master));
        mark(std::as_writable_bytes(view.residual), buffer.bytes(Role::kMaster));
        mark(std::as_writable_bytes(view.param), buffer.bytes(Role::kParam));
        for (Role role : {Role::kExpAvg, Role::kExpAvgSq}) {
          const MomentView& moment = role == Role::kExpAvg ? view.exp_avg : view.exp_avg_sq;
          const bool int8 = view.moments == MomentFormat::kInt8;
          EXPECT_EQ(moment.values.size(),
                    int8 ? segment.numel : moment_bytes(view.moments, segment.numel));
          EXPECT_EQ(moment.scales.size(), int8 ? ceil_div(segment.numel, kMomentBlock) : 0);
          mark(moment.values, buffer.bytes(role));
          mark(std::as_writable_bytes(moment.scales), buffer.bytes(role));
        }
      }
    }
  }
}

// Goal: the whole of a subgroup is its segments and what lies between them. Method: compare ends.
TEST_P(UpdateViewsTest, WholeSubgroup) {
  open(DType::kBFloat16, false);
  const UpdateBuffer buffer(*swap, 1);
  const UpdateView whole = UpdateViews(plan.layout, 1, buffer).whole();
  EXPECT_EQ(whole.numel(), kNormChunk);
  EXPECT_EQ(whole.param.size(), kNormChunk);
  EXPECT_EQ(std::as_writable_bytes(whole.param).data(), buffer.bytes(Role::kParam).data());
  EXPECT_EQ(whole.exp_avg.values.data(), buffer.bytes(Role::kExpAvg).data());
}

// Goal: weights in place are the user's memory, at the segment's place in the parameter. Method:
// addresses of the second subgroup's piece.
TEST_P(UpdateViewsTest, InPlace) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    open(dtype, true);
    const UpdateBuffer buffer(*swap, 1);
    const UpdateView view =
        UpdateViews(plan.layout, 1, buffer).of(plan.layout.subgroups[1].segments[0]);
    const HostSpan weights = dtype == DType::kBFloat16 ? std::as_writable_bytes(view.param)
                                                       : std::as_writable_bytes(view.master);
    EXPECT_EQ(weights.data(), user.data() + kNormChunk * dtype_bytes(dtype));
    EXPECT_EQ(weights.size(), 130 * dtype_bytes(dtype));
    EXPECT_EQ(view.first, kNormChunk);
  }
}

// Goal: a moment that the optimizer does not keep is absent. Method: one, then the other.
TEST_P(UpdateViewsTest, MomentsThatAreNotKept) {
  for (bool first : {true, false}) {
    open(DType::kBFloat16, false, {.exp_avg = first, .exp_avg_sq = !first});
    const UpdateBuffer buffer(*swap, 0);
    const UpdateView view =
        UpdateViews(plan.layout, 0, buffer).of(plan.layout.subgroups[0].segments[0]);
    EXPECT_EQ(view.exp_avg.values.empty(), !first);
    EXPECT_EQ(view.exp_avg_sq.values.empty(), first);
    EXPECT_TRUE((first ? view.exp_avg_sq : view.exp_avg).scales.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, UpdateViewsTest, testing::ValuesIn(state_format_names()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

}  // namespace
}  // namespace zoffload
