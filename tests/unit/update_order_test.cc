#include "core/plan/update_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/plan/plan.h"

namespace zoffload {
namespace {

constexpr uint64_t kChunk = kNormChunk;

// Three buckets of one large parameter and a small one: subgroups {0, 1, 2}, {3, 4, 5}, {6, 7, 8},
// of which the last of each holds the small one too.
Layout three_buckets() {
  std::vector<BucketSpec> model;
  for (const char* name : {"a", "b", "c"}) {
    BucketSpec bucket;
    bucket.name = name;
    bucket.params = {{"w", 2 * kChunk + 100, 0, {}}, {"b", 50, 0, {}}};
    model.push_back(bucket);
  }
  return make_layout(model, 0, 1, kChunk);
}

using Ids = std::vector<SubgroupId>;

// Goal: buckets come in the order of need, what it leaves out last; within a bucket nothing moves.
// Method: worked examples.
TEST(UpdateOrder, FollowsBuckets) {
  const Layout layout = three_buckets();
  ASSERT_EQ(layout.subgroups.size(), 9u);
  EXPECT_EQ(update_order(layout, {}, {}), Ids({0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(update_order(layout, {2, 0}, {}), Ids({6, 7, 8, 0, 1, 2, 3, 4, 5}));
}

// Goal: a subgroup is needed as soon as the first parameter in it is. Method: worked examples: a
// small parameter brings its subgroup alone to the front, a large one all of its own; the rest goes
// by buckets; a parameter that is listed twice counts where it is first.
TEST(UpdateOrder, FollowsParameters) {
  const Layout layout = three_buckets();
  EXPECT_EQ(update_order(layout, {2, 1, 0}, {3}), Ids({5, 6, 7, 8, 3, 4, 0, 1, 2}));
  EXPECT_EQ(update_order(layout, {}, {5, 2, 1, 5}), Ids({8, 3, 4, 5, 2, 0, 1, 6, 7}));
}

// Goal: the subgroups of a parameter are those that hold a piece of it. Method: all, by hand; a
// world of two, whose ranks have different ones; a parameter without elements.
TEST(UpdateOrder, SubgroupsOfAParameter) {
  const Layout layout = three_buckets();
  EXPECT_EQ(subgroups_of(layout, 0), Ids({0, 1, 2}));
  EXPECT_EQ(subgroups_of(layout, 1), Ids({2}));
  EXPECT_EQ(subgroups_of(layout, 4), Ids({6, 7, 8}));
  EXPECT_EQ(subgroups_of(layout, 5), Ids({8}));
  BucketSpec bucket;
  bucket.params = {{"a", kChunk, 0, {}}, {"none", 0, 0, {}}, {"b", kChunk, 0, {}}};
  const Layout first = make_layout({bucket}, 0, 2, kChunk);
  const Layout second = make_layout({bucket}, 1, 2, kChunk);
  EXPECT_EQ(subgroups_of(first, 0), Ids({0}));
  EXPECT_EQ(subgroups_of(second, 0), Ids());
  EXPECT_EQ(subgroups_of(first, 1), Ids());
  EXPECT_EQ(subgroups_of(second, 2), Ids({0}));
}

// Goal: resident subgroups are spread evenly through the update order, in elements, for what an
// update moves of each role, even where the forward needs whole buckets in another order than the
// layout's. Method: buckets of unequal subgroups, and frozen ones between them; at every point of
// the order each tier has its share of the trained elements so far, to within two subgroups (one at
// each end of a run) for every change of direction.
TEST(UpdateOrder, MeetsAnEvenMixtureOfHomes) {
  std::vector<BucketSpec> model;
  for (int b = 0; b < 12; ++b) {
    BucketSpec bucket;
    bucket.name = std::to_string(b);
    bucket.trainable = b % 3 != 1;
    bucket.params = {{"w", 5 * kChunk, 0, {}}};
    model.push_back(bucket);
  }
  PlanRequest request;
  request.params = {0.2, 0.3, 0.5};
  request.optimizer = {0, 0.4, 0.6};
  request.subgroup_numel = 4 * kChunk;  // each bucket is cut in 4 + 1
  const auto plan = make_plan(model, request);
  ASSERT_TRUE(plan.ok());
  const double param_shares[] = {0.2, 0.3, 0.5}, state_shares[] = {0, 0.4, 0.6};
  const auto check = [&](const std::vector<BucketId>& buckets, double subgroups_off) {
    double numel = 0, param_numel[3] = {}, state_numel[3] = {};
    for (SubgroupId id : update_order(plan->layout, buckets, {})) {
      const SubgroupLayout& subgroup = plan->layout.subgroups[id];
      if (!plan->layout.buckets[subgroup.bucket].trainable) continue;
      const auto own = static_cast<double>(subgroup.numel);
      numel += own;
      param_numel[static_cast<size_t>(plan->homes[id].param)] += own;
      state_numel[static_cast<size_t>(plan->homes[id].state)] += own;
      for (size_t tier = 0; tier < 3; ++tier) {
        const double off = subgroups_off * 4 * kChunk;
        EXPECT_NEAR(param_numel[tier], param_shares[tier] * numel, off) << id;
        EXPECT_NEAR(state_numel[tier], state_shares[tier] * numel, off) << id;
      }
    }
    EXPECT_EQ(numel, 8 * 5 * kChunk);
  };
  check({}, 1);
  check({6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5}, 2);
}

}  // namespace
}  // namespace zoffload
