// Which buckets exist as gathered memory, who holds them, and which are gathered ahead. The memory
// is the user's (torch's storage): only the user's thread frees and allocates it, so this class
// decides and the user carries out.
//
// Every decision depends on the order of the user's calls alone, never on timing: it is the same on
// every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/failure.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/ports/tier.h"

namespace zoffload {

class Leases {
 public:
  enum class State : uint8_t {
    kAbsent,    // no memory
    kWanted,    // told to the user, who will offer memory
    kFetching,  // a gather fills it
    kHere,      // gathered
  };

  // What the user's thread does before it asks for a bucket: free these, then allocate and offer
  // those, in order.
  struct Orders {
    std::vector<BucketId> drop;
    std::vector<BucketId> offer;
  };

  Leases(const Plan& plan, const Failure& failure);

  ScheduleBook& schedule() { return schedule_; }
  const ScheduleBook& schedule() const { return schedule_; }

  // The user is about to lease `bucket`. First access(): which others may have to go; then, when
  // each of those is at_rest(), prepare(). kOutOfMemory when every bucket that fits device_bytes is
  // leased.
  std::vector<BucketId> access(BucketId bucket);
  Result<Orders> prepare(BucketId bucket);

  void offer(BucketId bucket, DeviceSpan memory);  // REQUIRES: kWanted
  void publish(BucketId bucket);                   // REQUIRES: kFetching
  void lease(BucketId bucket);                     // REQUIRES: kHere
  bool release(BucketId bucket);                   // REQUIRES: leased. true: free the memory now

  // The homes of trainable buckets change: what is gathered of them must be gathered anew.
  void expire();
  void expire(BucketId bucket);

  // Drops every bucket without a lease, or, with `leased_too`, every bucket. REQUIRES: all are
  // at_rest(). Returns those whose memory the user is to free.
  std::vector<BucketId> drop_all(bool leased_too);

  // Of the loads of a gather that start now: the user waits for the bucket from access() to
  // lease().
  Urgency urgency(BucketId bucket) const {
    return bucket == awaited_ ? Urgency::kDemand : Urgency::kPrefetch;
  }
  State state(BucketId bucket) const { return buckets_[bucket].state; }
  uint32_t lease_count(BucketId bucket) const { return buckets_[bucket].lease_count; }
  DeviceSpan memory(BucketId bucket) const { return buckets_[bucket].memory; }
  uint64_t bytes_max() const { return bytes_max_; }  // high-water mark of gathered buckets
  uint64_t prefetched_count() const { return prefetched_count_; }
  uint64_t access_count() const { return access_count_; }  // and drop_all(): has a later call come?
  uint64_t on_demand_count() const { return on_demand_count_; }

  // Status status = co_await leases.at_rest(bucket): no gather of it is in flight. here(bucket): it
  // is gathered.
  auto at_rest(BucketId bucket) const {
    return Until(
        failure_, [this, bucket] { return state(bucket) != State::kFetching; },
        "the gather of bucket", bucket, WaitFor::flows(Work::kGather, bucket));
  }
  auto here(BucketId bucket) const {
    return Until(
        failure_, [this, bucket] { return state(bucket) == State::kHere; }, "the gather of bucket",
        bucket, WaitFor::flows(Work::kGather, bucket));
  }

 private:
  struct Bucket {
    State state = State::kAbsent;
    uint32_t lease_count = 0;
    bool stale = false;  // gathered before its home changed
    DeviceSpan memory;
  };
  uint32_t live_count() const;
  Status make_room(BucketId bucket, Orders& orders);
  void drop(BucketId bucket, Orders& orders);
  bool idle(BucketId bucket) const;  // has memory (or will) and no lease
  bool full() const {
    return plan_.bucket_count_max != 0 && live_count() >= plan_.bucket_count_max;
  }

  const Plan& plan_;
  const Failure& failure_;
  ScheduleBook schedule_;
  std::vector<Bucket> buckets_;
  std::optional<BucketId> awaited_;  // by the user, who asks for one at a time
  uint64_t bytes_now_ = 0;
  uint64_t bytes_max_ = 0;
  uint64_t prefetched_count_ = 0;
  uint64_t on_demand_count_ = 0;
  uint64_t access_count_ = 0;
};

}  // namespace zoffload
