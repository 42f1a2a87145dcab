#include "core/engine/leases.h"

#include <gtest/gtest.h>

#include <optional>

namespace zoffload {
namespace {

using Order = std::vector<BucketId>;
using State = Leases::State;

// Leases over `count` equal buckets, and a user who does as told, with gathers that end at once.
class LeasesTest : public testing::Test {
 protected:
  void open(uint32_t count, uint32_t prefetch, uint32_t bucket_count_max = 0) {
    std::vector<BucketSpec> model(count);
    for (BucketSpec& bucket : model) bucket.params = {{"p", 10, 0, {}}};
    plan.layout = make_layout(model, 0, 1, kNormChunk);
    plan.prefetch = prefetch;
    plan.bucket_count_max = bucket_count_max;
    leases.emplace(plan, failure);
  }
  void offer(BucketId bucket) { leases->offer(bucket, DeviceSpan(0x1000 * (bucket + 1), kBytes)); }
  void follow(const Leases::Orders& orders) {
    for (BucketId bucket : orders.offer) offer(bucket);
    for (BucketId bucket : orders.offer) leases->publish(bucket);
  }
  Result<Leases::Orders> prepare(BucketId bucket) {
    candidates = leases->access(bucket);
    return leases->prepare(bucket);
  }
  // Leases it; returns the orders that came with it.
  Leases::Orders hold(BucketId bucket) {
    auto orders = prepare(bucket);
    EXPECT_TRUE(orders.ok());
    follow(*orders);
    leases->lease(bucket);
    return *orders;
  }
  // One pass that holds each bucket for a moment.
  void pass(const Order& accesses) {
    leases->schedule().begin(1);
    for (BucketId bucket : accesses) {
      hold(bucket);
      leases->release(bucket);
    }
    leases->schedule().end();
  }

  static constexpr uint64_t kBytes = kNormChunk * 4;
  Plan plan;
  Failure failure;
  std::optional<Leases> leases;
  Order candidates;
};

// Goal: the keep window: what is asked for soon stays or is fetched ahead, the rest goes at once.
// Method: learn a forward and a backward over three buckets, then watch the orders.
TEST_F(LeasesTest, KeepsAndFetchesWhatComesNext) {
  open(3, 1);
  pass({0, 1, 2, 2, 1, 0});
  EXPECT_EQ(leases->on_demand_count(), 6u);
  EXPECT_EQ(leases->prefetched_count(), 0u);
  for (BucketId bucket = 0; bucket < 3; ++bucket) EXPECT_EQ(leases->state(bucket), State::kAbsent);

  leases->schedule().begin(1);
  EXPECT_EQ(hold(0).offer, (Order{0, 1}));  // needed first, then ahead
  EXPECT_TRUE(leases->release(0));          // comes again, but not next
  EXPECT_EQ(leases->state(0), State::kAbsent);
  EXPECT_EQ(hold(1).offer, (Order{2}));
  EXPECT_TRUE(leases->release(1));
  EXPECT_EQ(hold(2).offer, (Order{}));
  EXPECT_FALSE(leases->release(2));  // the backward asks for it next
  EXPECT_EQ(leases->state(2), State::kHere);
  EXPECT_EQ(hold(2).offer, (Order{1}));
  EXPECT_EQ(leases->on_demand_count(), 7u);
  EXPECT_EQ(leases->prefetched_count(), 3u);
  EXPECT_EQ(leases->bytes_max(), 2 * kBytes);
}

// Goal: what was fetched ahead and is not coming after all goes before anything else comes. Method:
// deviate: the bucket fetched ahead is a candidate to wait for, then dropped.
TEST_F(LeasesTest, DeviationDropsWhatWasFetchedAhead) {
  open(4, 1);
  pass({0, 1, 2, 3});
  leases->schedule().begin(1);
  hold(0);
  leases->release(0);
  ASSERT_EQ(leases->state(1), State::kHere);
  const Leases::Orders orders = hold(3);
  EXPECT_EQ(candidates, (Order{1}));
  EXPECT_EQ(orders.drop, (Order{1}));
  EXPECT_EQ(orders.offer, (Order{3}));
  EXPECT_EQ(leases->state(1), State::kAbsent);
}

// Goal: a bucket that is asked for twice in a row is offered once. Method: a pass that does.
TEST_F(LeasesTest, OffersOnce) {
  open(2, 2);
  pass({0, 0, 1});
  leases->schedule().begin(1);
  EXPECT_EQ(hold(0).offer, (Order{0, 1}));
}

// Goal: leases nest; memory goes with the last. Method: two leases of one bucket.
TEST_F(LeasesTest, LeasesNest) {
  open(1, 0);
  hold(0);
  EXPECT_TRUE(hold(0).offer.empty());
  EXPECT_EQ(leases->lease_count(0), 2u);
  EXPECT_FALSE(leases->release(0));
  EXPECT_TRUE(leases->release(0));
  EXPECT_EQ(leases->lease_count(0), 0u);
}

// Goal: a full house is an error that says so and how to help, and changes nothing. Method: lease
// as many as fit and ask for one more; release one and ask again.
TEST_F(LeasesTest, FullIsAnError) {
  open(3, 0, 2);
  hold(0);
  hold(1);
  const auto refused = prepare(2);
  EXPECT_EQ(refused.status().code(), Code::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("all 2 gathered buckets"), std::string::npos);
  EXPECT_EQ(leases->state(2), State::kAbsent);
  EXPECT_EQ(leases->state(0), State::kHere);
  EXPECT_TRUE(leases->release(0));
  EXPECT_EQ(hold(2).offer, (Order{2}));
}

// Goal: a bucket that is wanted has its place already. Method: ask twice for the last that fits.
TEST_F(LeasesTest, WantedKeepsItsPlace) {
  open(3, 0, 2);
  hold(0);
  ASSERT_TRUE(prepare(1).ok());
  const auto again = prepare(1);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->offer, (Order{1}));
}

// Goal: what is gathered when the homes change is gathered anew, the bucket asked for included;
// what is leased or never trained is not. Method: expire with one bucket of each sort here.
TEST_F(LeasesTest, Expire) {
  open(4, 3);
  plan.layout.buckets[3].trainable = false;
  pass({0, 1, 2, 3});
  leases->schedule().begin(1);
  hold(0);
  for (BucketId bucket = 0; bucket < 4; ++bucket) ASSERT_EQ(leases->state(bucket), State::kHere);
  leases->expire();
  const Leases::Orders orders = hold(1);
  EXPECT_EQ(candidates, (Order{1, 2}));
  EXPECT_EQ(orders.drop, (Order{1, 2}));
  EXPECT_EQ(orders.offer, (Order{1, 2}));
  EXPECT_EQ(leases->lease_count(0), 1u);
  EXPECT_TRUE(hold(2).offer.empty());  // once is enough
}

// Goal: what is needed now goes before what may be needed soon, and no more is fetched ahead than
// fits. Method: room for two: one leased, one fetched ahead, and a third is asked for.
TEST_F(LeasesTest, NeedGoesBeforePrefetch) {
  open(4, 3, 2);
  pass({0, 1, 2, 3});
  leases->schedule().begin(1);
  EXPECT_EQ(hold(0).offer, (Order{0, 1}));
  leases->schedule().access(1);  // as if 1 had been used, so that it is idle but still ahead
  leases->schedule().begin(1);
  leases->schedule().access(0);
  const Leases::Orders orders = hold(3);
  EXPECT_EQ(candidates, (Order{1}));
  EXPECT_EQ(orders.drop, (Order{1}));
  EXPECT_EQ(orders.offer, (Order{3}));
  EXPECT_EQ(leases->bytes_max(), 2 * kBytes);
}

// Goal: a bucket the user was told of and never offered holds up nobody: it is asked for again when
// needed, dropped without a trace when not, and counts while it is wanted. Method: ignore orders.
TEST_F(LeasesTest, WantedButNeverOffered) {
  open(3, 1, 2);
  pass({0, 1, 2});
  leases->schedule().begin(1);
  ASSERT_EQ(prepare(0)->offer, (Order{0, 1}));
  EXPECT_EQ(leases->state(1), State::kWanted);
  const auto next = prepare(1);
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next->drop.empty());        // 0 had no memory
  EXPECT_EQ(next->offer, (Order{1, 2}));  // 1 once more
  EXPECT_EQ(leases->state(0), State::kAbsent);
  follow({{}, {1}});
  leases->lease(1);
  leases->schedule().begin(2);  // nothing is known to come; 2, wanted, fills the last place
  const auto other = prepare(0);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(other->drop.empty());
  EXPECT_EQ(other->offer, (Order{0}));
  EXPECT_EQ(leases->state(2), State::kAbsent);
  EXPECT_EQ(leases->drop_all(true), (Order{1}));  // 0 is wanted only
  EXPECT_EQ(leases->state(0), State::kAbsent);
  EXPECT_EQ(leases->bytes_max(), kBytes);
}

// Goal: everything can be let go of, with or without what is leased. Method: both, on one leased
// and one idle bucket.
TEST_F(LeasesTest, DropAll) {
  open(3, 2);
  pass({0, 1, 2});
  leases->schedule().begin(1);
  EXPECT_EQ(hold(0).offer, (Order{0, 1, 2}));
  EXPECT_EQ(leases->drop_all(false), (Order{1, 2}));
  EXPECT_EQ(leases->state(0), State::kHere);
  EXPECT_EQ(leases->drop_all(true), (Order{0}));
  EXPECT_EQ(leases->lease_count(0), 0u);
  hold(1);  // the high-water mark did not lose count
  EXPECT_EQ(leases->bytes_max(), 3 * kBytes);
}

// Goal: a bucket is urgent while the user waits for it: from the moment it is asked for until it is
// leased, given up for another, or let go of. Method: each end in turn; what is fetched ahead never
// is.
TEST_F(LeasesTest, UrgentWhileTheUserWaits) {
  open(3, 1);
  pass({0, 1, 2});
  leases->schedule().begin(1);
  const auto urgent = [this] {
    Order buckets;
    for (BucketId bucket = 0; bucket < 3; ++bucket) {
      if (leases->urgency(bucket) == Urgency::kDemand) buckets.push_back(bucket);
    }
    return buckets;
  };
  EXPECT_EQ(urgent(), (Order{}));
  ASSERT_EQ(prepare(0)->offer, (Order{0, 1}));
  EXPECT_EQ(urgent(), (Order{0}));
  follow({{}, {0, 1}});
  EXPECT_EQ(urgent(), (Order{0}));
  leases->lease(0);
  EXPECT_EQ(urgent(), (Order{}));
  ASSERT_TRUE(prepare(1).ok());
  ASSERT_TRUE(prepare(2).ok());
  EXPECT_EQ(urgent(), (Order{2}));
  leases->drop_all(true);
  EXPECT_EQ(urgent(), (Order{}));
}

using LeasesDeathTest = LeasesTest;

// Goal: memory that nobody asked for, a lease of what is not there, one release too many, and a
// drop in the middle of a gather are our mistakes. Method: one process for each.
TEST_F(LeasesDeathTest, Misuse) {
  open(2, 0);
  EXPECT_DEATH(offer(0), "State::kWanted");
  EXPECT_DEATH(leases->lease(0), "State::kHere");
  EXPECT_DEATH(leases->release(0), "lease_count > 0");
  EXPECT_DEATH(leases->publish(0), "State::kFetching");
  ASSERT_TRUE(prepare(0).ok());
  EXPECT_DEATH(leases->offer(0, DeviceSpan(0x1000, 4)), "memory.bytes\\(\\)");
  offer(0);
  EXPECT_DEATH(leases->drop_all(true), "State::kFetching");
}

}  // namespace
}  // namespace zoffload
