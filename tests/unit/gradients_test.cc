#include "core/engine/gradients.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/flow_helpers.h"

namespace zoffload {
namespace {

// One bucket of two subgroups: p0 fills the first and reaches into the second, p1 lies in it.
Layout two_subgroups() {
  BucketSpec bucket;
  bucket.params = {{"p0", kNormChunk + 10, 0, {}}, {"p1", 100, 0, {}}, {"none", 0, 0, {}}};
  return make_layout({bucket, BucketSpec{}}, 0, 1, kNormChunk);
}

Task<Status> take_turn(Gradients& gradients, Gate& gate, uint64_t place, Diary& diary) {
  co_await gate;
  Status status = co_await gradients.my_place(0, place);
  ZO_CO_TRY(status);
  diary.push_back(std::to_string(place));
  gradients.leave(0);
  co_return Status();
}

Task<Status> await_all(Gradients& gradients, Diary& diary) {
  Status status = co_await gradients.all_reduced();
  ZO_CO_TRY(status);
  diary.push_back("all");
  co_return Status();
}

// Goal: reduces of a bucket take effect in program order, and the step waits for the last. Method:
// three whose transfers end in another order.
TEST(Gradients, ReducesTakeEffectInOrder) {
  const Layout layout = two_subgroups();
  Failure failure;
  Gradients gradients(layout, failure);
  NotedFlows noted;
  Gate gates[3];
  Diary diary;
  for (Gate& gate : gates) {
    noted.flows.spawn("r", take_turn(gradients, gate, gradients.take_place(0), diary));
  }
  EXPECT_EQ(gradients.take_place(1), 0u);  // of another bucket: its own count
  noted.flows.spawn("all", await_all(gradients, diary));
  gates[2].open = true;
  while (noted.flows.tick() > 0) continue;
  gates[1].open = true;
  while (noted.flows.tick() > 0) continue;
  EXPECT_TRUE(diary.empty());
  gates[0].open = true;
  while (noted.flows.tick() > 0) continue;
  EXPECT_EQ(diary, (Diary{"0", "1", "2"}));
  gradients.leave(1);
  while (noted.flows.tick() > 0) continue;
  EXPECT_EQ(diary.back(), "all");
  EXPECT_TRUE(noted.failures.empty());
}

// Goal: waits end with the failure. Method: one waits for a place that never comes, one for all.
TEST(Gradients, FailureEndsTheWaits) {
  const Layout layout = two_subgroups();
  Failure failure;
  Gradients gradients(layout, failure);
  NotedFlows noted;
  Gate gate;
  gate.open = true;
  Diary diary;
  gradients.take_place(0);
  noted.flows.spawn("r", take_turn(gradients, gate, gradients.take_place(0), diary));
  noted.flows.spawn("all", await_all(gradients, diary));
  while (noted.flows.tick() > 0) continue;
  EXPECT_EQ(noted.flows.count(), 2u);
  EXPECT_NE(noted.flows.describe(1).find("an earlier reduce of bucket 0"), std::string::npos);
  EXPECT_TRUE(failure.set(Status(Code::kIoError, "gone")));
  noted.flows.tick();
  EXPECT_EQ(noted.flows.count(), 0u);
  EXPECT_EQ(noted.failures.size(), 2u);
  EXPECT_TRUE(diary.empty());
}

// Goal: which subgroups have work. Method: post a parameter that lies in both, in one, in none.
TEST(Gradients, PostedPerSubgroup) {
  const Layout layout = two_subgroups();
  Failure failure;
  const auto posted = [&](ParamId param) {
    Gradients gradients(layout, failure);
    gradients.post(param);
    return std::pair(gradients.any_posted(layout.subgroups[0]),
                     gradients.any_posted(layout.subgroups[1]));
  };
  EXPECT_EQ(posted(0), std::pair(true, true));
  EXPECT_EQ(posted(1), std::pair(false, true));
  EXPECT_EQ(posted(2), std::pair(false, false));
}

// Goal: the total is taken chunk after chunk, whatever the cut. Method: sums whose order shows in
// the last bit, dealt over one subgroup of four chunks and over four of one.
TEST(Gradients, TotalDoesNotDependOnTheCut) {
  BucketSpec bucket;
  bucket.params = {{"p", 4 * kNormChunk, 0, {}}};
  const double sums[] = {1.0, 1e-16, 1e-16, 1e16};
  Failure failure;
  const Layout whole = make_layout({bucket}, 0, 1, 4 * kNormChunk);
  const Layout cut = make_layout({bucket}, 0, 1, kNormChunk);
  Gradients one(whole, failure);
  Gradients four(cut, failure);
  ASSERT_EQ(one.chunk_sums(0).size(), 4u);
  double expected = 0;
  for (SubgroupId i = 0; i < 4; ++i) {
    one.chunk_sums(0)[i] = sums[i];
    ASSERT_EQ(four.chunk_sums(i).size(), 1u);
    four.chunk_sums(i)[0] = sums[i];
    expected += sums[i];
  }
  EXPECT_EQ(one.total(), expected);
  EXPECT_EQ(four.total(), expected);
}

// Goal: after a step nothing is left of it. Method: set everything, forget, look.
TEST(Gradients, Forget) {
  const Layout layout = two_subgroups();
  Failure failure;
  Gradients gradients(layout, failure);
  std::vector<std::byte> memory(16);
  gradients.post(0);
  gradients.mark_arrived(0);
  gradients.set_in_place(0, memory);
  gradients.chunk_sums(1)[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(gradients.posted()[0], 1);
  EXPECT_EQ(gradients.posted()[1], 0);
  EXPECT_TRUE(gradients.arrived(0));
  EXPECT_EQ(gradients.in_place(0).data(), memory.data());
  gradients.forget();
  EXPECT_EQ(gradients.posted()[0], 0);
  EXPECT_FALSE(gradients.arrived(0));
  EXPECT_TRUE(gradients.in_place(0).empty());
  EXPECT_EQ(gradients.total(), 0);
}

}  // namespace
}  // namespace zoffload
