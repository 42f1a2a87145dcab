#include "core/plan/plan.h"

#include <gtest/gtest.h>

#include "core/base/format.h"

namespace zoffload {
namespace {

BucketSpec block(const std::string& name, DType dtype, uint64_t numel, bool trainable = true) {
  BucketSpec bucket;
  bucket.name = name;
  bucket.dtype = dtype;
  bucket.trainable = trainable;
  bucket.params = {{name + ".w", numel, 0, {}}};
  return bucket;
}

PlanRequest request_for(Placement params, Placement optimizer) {
  PlanRequest request;
  request.params = params;
  request.optimizer = optimizer;
  request.subgroup_bytes = kNormChunk * 12;
  return request;
}

uint64_t home(const Plan& plan, TierKind tier) {
  return plan.home_bytes[static_cast<size_t>(tier)];
}

constexpr Placement kHost{0, 1, 0};
constexpr Placement kNvme{0, 0, 1};
constexpr Placement kHbm{1, 0, 0};

// Goal: every byte is counted where it lies. Method: a worked example: bf16, all on NVMe.
TEST(Plan, WorkedExample) {
  PlanRequest request = request_for(kNvme, kNvme);
  request.workers = 2;
  const auto plan = make_plan({block("a", DType::kBFloat16, 10 * kNormChunk)}, request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->layout.subgroups.size(), 10u);
  EXPECT_EQ(home(*plan, TierKind::kNvme), 10 * kNormChunk * (2 + 12));
  EXPECT_EQ(home(*plan, TierKind::kHost), 0u);
  EXPECT_EQ(plan->gradient_bytes, 10 * kNormChunk * 2);
  EXPECT_EQ(plan->update.bytes, kNormChunk * 14);
  EXPECT_EQ(plan->update.count, 3 + 2u);
  EXPECT_EQ(plan->staging.bytes, kNormChunk * 2);
  EXPECT_EQ(plan->staging.count, 4u);
  EXPECT_EQ(plan->gradient.bytes, 10 * kNormChunk * 2);
  EXPECT_EQ(plan->gradient.count, 2u);
  EXPECT_EQ(plan->arena_bytes(), plan->gradient_bytes + 5 * kNormChunk * 14 + 4 * kNormChunk * 2);
  EXPECT_EQ(plan->device_bytes(), 2 * plan->gradient.bytes);
  EXPECT_EQ(plan->bucket_count_max, 0u);
  EXPECT_NE(plan->summary().find("update slots 5 x 56.0 KiB"), std::string::npos);
}

// Goal: memory that the CPU addresses needs no slots; several micro-steps need fp32 gradients; what
// is not trained has neither gradient nor state. Method: one plan for each.
TEST(Plan, KeepsOnlyWhatIsNeeded) {
  PlanRequest request = request_for(kHost, kHost);
  const auto host = make_plan({block("a", DType::kBFloat16, kNormChunk)}, request);
  ASSERT_TRUE(host.ok());
  EXPECT_EQ(host->update.total_bytes(), 0u);
  EXPECT_EQ(home(*host, TierKind::kHost), kNormChunk * 14);
  EXPECT_EQ(host->gradient_dtype, DType::kBFloat16);
  request.micro_steps = 2;
  const auto micro = make_plan({block("a", DType::kBFloat16, kNormChunk)}, request);
  EXPECT_EQ(micro->gradient_dtype, DType::kFloat32);
  EXPECT_EQ(micro->gradient_bytes, kNormChunk * 4);
  const auto frozen = make_plan({block("a", DType::kBFloat16, kNormChunk, false)}, request);
  EXPECT_EQ(home(*frozen, TierKind::kHost), kNormChunk * 2);
  EXPECT_EQ(frozen->gradient_bytes, 0u);
  EXPECT_EQ(frozen->gradient.count, 0u);
  const auto fp32 = make_plan({block("a", DType::kFloat32, kNormChunk)}, request);
  EXPECT_EQ(home(*fp32, TierKind::kHost), kNormChunk * 12);  // the parameter is the master
}

struct FormatBytes {
  const char* name;
  uint64_t state_bytes;  // of a chunk of kNormChunk elements of a bf16 model, page by page
};

// Goal: homes and slots have the bytes of the format, and subgroups as many elements as fit.
// Method: every format by hand, bf16, all on NVMe; the moments' scales take a page of their own
// each.
TEST(Plan, CountsTheBytesOfTheFormat) {
  constexpr uint64_t kChunk = kNormChunk;
  for (const auto& [name, bytes] :
       {FormatBytes{"fp32", 12 * kChunk}, FormatBytes{"split", 10 * kChunk},
        FormatBytes{"bf16", 8 * kChunk}, FormatBytes{"split+bf16", 6 * kChunk},
        FormatBytes{"int8", 6 * kChunk + 2 * kPageBytes},
        FormatBytes{"split+int8", 4 * kChunk + 2 * kPageBytes}}) {
    BucketSpec bucket = block("a", DType::kBFloat16, 10 * kNormChunk);
    bucket.format = state_format_named(name).value();
    PlanRequest request = request_for(kNvme, kNvme);
    request.subgroup_bytes = bytes;
    const auto plan = make_plan({bucket}, request);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->layout.subgroup_numel, kNormChunk) << name;
    EXPECT_EQ(plan->update.bytes, bytes + 2 * kChunk) << name;
    EXPECT_EQ(home(*plan, TierKind::kNvme), 10 * (bytes + 2 * kChunk)) << name;
    EXPECT_NE(plan->summary().find(std::string("state as ") + name + ": "), std::string::npos);
    request.subgroup_bytes = 4 * bytes;
    EXPECT_GE(make_plan({bucket}, request)->layout.subgroup_numel, 4 * kNormChunk) << name;
  }
}

// Goal: in a model of several formats, the largest bounds the subgroups, in bytes; so does a number
// of elements. Method: buckets of 12 and 6 bytes, alone and together.
TEST(Plan, TheLargestFormatBoundsTheSubgroups) {
  const BucketSpec large = block("a", DType::kBFloat16, 64 * kNormChunk);
  BucketSpec small = block("b", DType::kBFloat16, 64 * kNormChunk);
  small.format = state_format_named("split+bf16").value();
  PlanRequest request = request_for(kHost, kNvme);
  request.subgroup_bytes = 8 * 12 * kNormChunk;
  EXPECT_EQ(make_plan({small}, request)->layout.subgroup_numel, 16 * kNormChunk);
  const auto both = make_plan({small, large}, request);
  EXPECT_EQ(both->layout.subgroup_numel, 8 * kNormChunk);
  EXPECT_EQ(both->update.bytes, 8 * 12 * kNormChunk);
  const std::string summary = both->summary();
  EXPECT_LT(summary.find("state as fp32: 3.00 MiB"), summary.find("state as split+bf16: 1.50 MiB"));
  request.subgroup_numel = 3 * kNormChunk + 1;
  EXPECT_EQ(make_plan({small, large}, request)->layout.subgroup_numel, 3 * kNormChunk);
  request.subgroup_numel = 1;
  EXPECT_EQ(make_plan({small, large}, request)->layout.subgroup_numel, kNormChunk);
}

// Goal: fp32 weights are their own master, whatever the format says. Method: split, in fp32.
TEST(Plan, SplitNeedsSixteenBitWeights) {
  BucketSpec bucket = block("a", DType::kFloat32, kNormChunk);
  bucket.format = state_format_named("split+bf16").value();
  const auto plan = make_plan({bucket}, request_for(kHost, kHost));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(home(*plan, TierKind::kHost), kNormChunk * (4 + 2 + 2));
}

// Goal: what the optimizer does not keep has neither home nor slot. Method: one moment, and none.
TEST(Plan, MomentsThatAreNotKept) {
  PlanRequest request = request_for(kHost, kNvme);
  request.moments = {.exp_avg = true, .exp_avg_sq = false};
  const std::vector<BucketSpec> model = {block("a", DType::kBFloat16, kNormChunk)};
  EXPECT_EQ(home(*make_plan(model, request), TierKind::kNvme), kNormChunk * 8);
  request.moments = {.exp_avg = false, .exp_avg_sq = false};
  const auto none = make_plan(model, request);
  EXPECT_EQ(home(*none, TierKind::kNvme), kNormChunk * 4);
  EXPECT_EQ(none->update.bytes, kNormChunk * 4);
}

// Goal: level 1: parameters stay with the user, their state has a home. Method: bf16 in place.
TEST(Plan, InPlace) {
  std::vector<std::byte> memory(kNormChunk * 2);
  BucketSpec bucket = block("a", DType::kBFloat16, kNormChunk);
  bucket.in_place = true;
  bucket.params[0].in_place = memory;
  const auto plan = make_plan({bucket}, request_for(kNvme, kHost));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->homes[0].param, TierKind::kInPlace);
  EXPECT_EQ(plan->homes[0].state, TierKind::kHost);
  EXPECT_EQ(home(*plan, TierKind::kHost), kNormChunk * 12);
  EXPECT_EQ(home(*plan, TierKind::kNvme), 0u);
  EXPECT_EQ(plan->gradient_bytes + plan->gradient.total_bytes() + plan->staging.total_bytes(), 0u);
}

// Goal: shares are dealt evenly through the order, not in runs. Method: after each subgroup, each
// tier has its share of those so far to within one; halves alternate.
TEST(Plan, DealsSharesEvenly) {
  const std::vector<BucketSpec> model = {block("a", DType::kFloat32, 100 * kNormChunk)};
  const auto plan = make_plan(model, request_for({0.2, 0.3, 0.5}, {0, 0.5, 0.5}));
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->homes.size(), 100u);
  const double shares[] = {0.2, 0.3, 0.5};
  int counts[3] = {};
  for (size_t i = 0; i < 100; ++i) {
    ++counts[static_cast<size_t>(plan->homes[i].param)];
    for (size_t tier = 0; tier < 3; ++tier) {
      EXPECT_NEAR(counts[tier], shares[tier] * static_cast<double>(i + 1), 1.0) << i;
    }
    EXPECT_EQ(plan->homes[i].state, i % 2 == 0 ? TierKind::kHost : TierKind::kNvme) << i;
  }
}

// Goal: shares are of elements, not of subgroups. Method: buckets of a full and a small subgroup
// each, which would put all large ones in one tier if they were counted.
TEST(Plan, SharesAreOfElements) {
  std::vector<BucketSpec> model;
  for (int b = 0; b < 10; ++b) {
    model.push_back(block(std::to_string(b), DType::kFloat32, 9 * kNormChunk));
  }
  PlanRequest request = request_for(kHost, {0, 0.5, 0.5});
  request.subgroup_bytes = 8 * kNormChunk * 12;
  const auto plan = make_plan(model, request);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->homes.size(), 20u);
  EXPECT_EQ(home(*plan, TierKind::kNvme), 5 * 9 * kNormChunk * 8);
}

// Goal: parameters that are updated and those that are not are dealt apart. Method: frozen and
// trained buckets in turn, by halves.
TEST(Plan, FrozenParametersAreDealtApart) {
  std::vector<BucketSpec> model;
  for (int b = 0; b < 8; ++b) {
    model.push_back(block(std::to_string(b), DType::kFloat32, kNormChunk, b % 2 == 0));
  }
  const auto plan = make_plan(model, request_for({0, 0.5, 0.5}, kHost));
  ASSERT_TRUE(plan.ok());
  for (size_t i = 0; i < 8; ++i) {
    const TierKind expected = i / 2 % 2 == 0 ? TierKind::kHost : TierKind::kNvme;
    EXPECT_EQ(plan->homes[i].param, expected) << i;
  }
}

// Goal: the slots keep a limit of their own, by smaller subgroups; the update slots are 3, one for
// each worker and what the drives keep in flight. Method: more workers than the limit has room for
// at the asked size; a limit that is just met changes nothing.
TEST(Plan, SlotsKeepTheirLimit) {
  const std::vector<BucketSpec> model = {block("a", DType::kBFloat16, 4096 * kNormChunk)};
  PlanRequest request = request_for(kNvme, kNvme);
  request.subgroup_bytes = 256 * kNormChunk * 12;
  request.workers = 30;
  request.in_flight_bytes = 10 * 256 * kNormChunk * 14;
  const auto free = make_plan(model, request);
  ASSERT_TRUE(free.ok());
  EXPECT_EQ(free->update.count, 3 + 30 + 10u);
  EXPECT_EQ(free->slot_bytes(), free->update.total_bytes() + free->staging.total_bytes());
  EXPECT_NE(free->summary().find("update and staging slots: " + format_bytes(free->slot_bytes())),
            std::string::npos);
  request.slot_bytes_max = free->slot_bytes();
  EXPECT_EQ(make_plan(model, request)->layout.subgroup_numel, 256 * kNormChunk);
  request.slot_bytes_max = free->slot_bytes() - 1;
  const auto limited = make_plan(model, request);
  EXPECT_LE(limited->slot_bytes(), request.slot_bytes_max);
  EXPECT_EQ(limited->layout.subgroup_numel, 128 * kNormChunk);
  EXPECT_EQ(limited->update.count, 3 + 30 + 20u);
}

// Goal: what is not trained has no share of the optimizer state. Method: a frozen bucket between
// two trained ones, which alternate all the same.
TEST(Plan, FrozenBucketsTakeNoShareOfTheState) {
  const auto plan =
      make_plan({block("a", DType::kFloat32, 1), block("b", DType::kFloat32, 1, false),
                 block("c", DType::kFloat32, 1)},
                request_for(kHbm, {0, 0.5, 0.5}));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->homes[0].state, TierKind::kHost);
  EXPECT_EQ(plan->homes[1].state, TierKind::kHbm);  // as its parameters
  EXPECT_EQ(plan->homes[2].state, TierKind::kNvme);
}

// Goal: shares that are none are refused by name. Method: too much, too little, negative.
TEST(Plan, RefusesBadShares) {
  const std::vector<BucketSpec> model = {block("a", DType::kFloat32, 1)};
  for (const Placement bad : {Placement{0, 1, 1}, Placement{0, 0.5, 0}, Placement{-1, 1, 1}}) {
    const auto params = make_plan(model, request_for(bad, kHost));
    EXPECT_EQ(params.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(params.status().message().find("params:"), 0u);
    const auto optimizer = make_plan(model, request_for(kHost, bad));
    EXPECT_EQ(optimizer.status().message().find("optimizer:"), 0u);
  }
}

// Goal: a tight host budget makes subgroups smaller, then slots fewer, before it is an error; the
// result fits. Method: lower the budget step by step.
TEST(Plan, ShrinksToTheHostBudget) {
  const std::vector<BucketSpec> model = {block("a", DType::kBFloat16, 256 * kNormChunk)};
  PlanRequest request = request_for(kNvme, kNvme);
  request.subgroup_bytes = 64 * kNormChunk * 12;
  const auto free = make_plan(model, request);
  ASSERT_TRUE(free.ok());
  EXPECT_EQ(free->layout.subgroup_numel, 64 * kNormChunk);

  request.host_bytes = free->arena_bytes();
  EXPECT_EQ(make_plan(model, request)->layout.subgroup_numel, 64 * kNormChunk);
  request.host_bytes = free->arena_bytes() - 1;
  const auto tight = make_plan(model, request);
  ASSERT_TRUE(tight.ok());
  EXPECT_EQ(tight->layout.subgroup_numel, 32 * kNormChunk);
  EXPECT_EQ(tight->update.count, free->update.count);
  EXPECT_LE(tight->arena_bytes(), request.host_bytes);

  const uint64_t numel = 4 * kNormChunk;  // the smallest subgroup, two slots of each kind
  const uint64_t smallest = free->gradient_bytes + 2 * numel * 14 + 2 * numel * 2;
  request.host_bytes = smallest;
  const auto least = make_plan(model, request);
  ASSERT_TRUE(least.ok());
  EXPECT_EQ(least->layout.subgroup_numel, numel);
  EXPECT_EQ(least->update.count, 2u);
  EXPECT_EQ(least->arena_bytes(), smallest);

  request.host_bytes = smallest - 100;
  const auto none = make_plan(model, request);
  EXPECT_EQ(none.status().code(), Code::kOutOfMemory);
  EXPECT_NE(none.status().message().find(" 100 bytes are missing"), std::string::npos);
  EXPECT_NE(none.status().message().find("raise host_bytes"), std::string::npos);
}

// Goal: device_bytes covers homes, gradient slots and two buckets, or the error gives the number;
// what is left is for more buckets. Method: exactly enough, one byte less, one bucket more.
TEST(Plan, KeepsTheDeviceBudget) {
  const std::vector<BucketSpec> model = {block("a", DType::kFloat32, kNormChunk),
                                         block("b", DType::kFloat32, 2 * kNormChunk)};
  PlanRequest request = request_for(kHbm, kHost);
  const uint64_t bucket = 2 * kNormChunk * 4;
  const uint64_t fixed = 3 * kNormChunk * 4 + 2 * bucket;  // homes, gradient slots
  request.device_bytes = fixed + 2 * bucket;
  const auto exact = make_plan(model, request);
  ASSERT_TRUE(exact.ok());
  EXPECT_EQ(exact->device_bytes(), fixed);
  EXPECT_EQ(exact->bucket_count_max, 2u);
  request.device_bytes += bucket;
  EXPECT_EQ(make_plan(model, request)->bucket_count_max, 3u);
  request.device_bytes = fixed + 2 * bucket - 1024;
  const auto less = make_plan(model, request);
  EXPECT_EQ(less.status().code(), Code::kOutOfMemory);
  EXPECT_NE(less.status().message().find("1.00 KiB are missing"), std::string::npos);
  EXPECT_NE(less.status().message().find("device_bytes"), std::string::npos);
}

// Goal: ranks of one world plan alike. Method: homes and slots of all ranks of three.
TEST(Plan, IsTheSameOnEveryRank) {
  PlanRequest request = request_for({0.5, 0.25, 0.25}, {0, 0.5, 0.5});
  request.world_size = 3;
  const std::vector<BucketSpec> model = {block("a", DType::kBFloat16, 100 * kNormChunk)};
  const auto first = make_plan(model, request);
  ASSERT_TRUE(first.ok());
  for (request.rank = 1; request.rank < 3; ++request.rank) {
    const auto other = make_plan(model, request);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(other->home_bytes, first->home_bytes);
    EXPECT_EQ(other->arena_bytes(), first->arena_bytes());
    EXPECT_EQ(other->layout.subgroups.size(), first->layout.subgroups.size());
  }
}

}  // namespace
}  // namespace zoffload
