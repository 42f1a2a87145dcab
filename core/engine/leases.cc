#include "core/engine/leases.h"

#include <algorithm>

namespace zoffload {

namespace {

bool contains(const std::vector<BucketId>& buckets, BucketId bucket) {
  return std::find(buckets.begin(), buckets.end(), bucket) != buckets.end();
}

}  // namespace

Leases::Leases(const Plan& plan, const Failure& failure)
    : plan_(plan), failure_(failure), buckets_(plan.layout.buckets.size()) {}

std::vector<BucketId> Leases::access(BucketId bucket) {
  ++access_count_;
  awaited_ = bucket;
  schedule_.access(bucket);
  const std::vector<BucketId> ahead = schedule_.upcoming(plan_.prefetch);
  const bool crowded = full() && state(bucket) == State::kAbsent;
  std::vector<BucketId> candidates;
  for (BucketId other = 0; other < buckets_.size(); ++other) {
    if (!idle(other)) continue;
    const bool wanted = other == bucket || contains(ahead, other);
    if (crowded || !wanted || buckets_[other].stale) candidates.push_back(other);
  }
  return candidates;
}

Result<Leases::Orders> Leases::prepare(BucketId bucket) {
  Orders orders;
  const std::vector<BucketId> ahead = schedule_.upcoming(plan_.prefetch);
  for (BucketId other = 0; other < buckets_.size(); ++other) {
    const bool wanted = other == bucket || contains(ahead, other);
    if (idle(other) && (!wanted || buckets_[other].stale)) drop(other, orders);
  }
  if (state(bucket) == State::kAbsent || state(bucket) == State::kWanted) {
    ZO_TRY(make_room(bucket, orders));
    buckets_[bucket].state = State::kWanted;
    orders.offer.push_back(bucket);
    ++on_demand_count_;
  }
  for (BucketId next : ahead) {
    if (state(next) == State::kFetching || state(next) == State::kHere) continue;
    if (next == bucket) continue;
    if (state(next) == State::kAbsent && full()) break;
    buckets_[next].state = State::kWanted;
    orders.offer.push_back(next);
    ++prefetched_count_;
  }
  return orders;
}

// What was gathered ahead gives way to what is needed now.
Status Leases::make_room(BucketId bucket, Orders& orders) {
  if (state(bucket) == State::kWanted) return Status();
  for (BucketId other = 0; other < buckets_.size() && full(); ++other) {
    if (other != bucket && idle(other)) drop(other, orders);
  }
  if (!full()) return Status();
  return Status(Code::kOutOfMemory,
                "bucket " + plan_.layout.buckets[bucket].name + ": all " +
                    std::to_string(plan_.bucket_count_max) +
                    " gathered buckets that device_bytes allows are in use: release one, or raise "
                    "device_bytes");
}

void Leases::offer(BucketId bucket, DeviceSpan memory) {
  Bucket& b = buckets_[bucket];
  ZO_CHECK(b.state == State::kWanted);
  ZO_CHECK(memory.bytes() == plan_.layout.buckets[bucket].bytes());
  b.state = State::kFetching;
  b.memory = memory;
  bytes_now_ += memory.bytes();
  bytes_max_ = std::max(bytes_max_, bytes_now_);
}

void Leases::publish(BucketId bucket) {
  ZO_CHECK(buckets_[bucket].state == State::kFetching);
  buckets_[bucket].state = State::kHere;
}

void Leases::lease(BucketId bucket) {
  ZO_CHECK(buckets_[bucket].state == State::kHere);
  ++buckets_[bucket].lease_count;
  awaited_.reset();
}

bool Leases::release(BucketId bucket) {
  Bucket& b = buckets_[bucket];
  ZO_CHECK(b.lease_count > 0);
  if (--b.lease_count > 0) return false;
  if (contains(schedule_.upcoming(plan_.prefetch), bucket)) return false;
  Orders orders;
  drop(bucket, orders);
  return true;
}

void Leases::expire() {
  for (BucketId bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (plan_.layout.buckets[bucket].trainable) expire(bucket);
  }
}

void Leases::expire(BucketId bucket) {
  if (idle(bucket)) buckets_[bucket].stale = true;
}

std::vector<BucketId> Leases::drop_all(bool leased_too) {
  ++access_count_;
  awaited_.reset();
  Orders orders;
  for (BucketId bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (leased_too) buckets_[bucket].lease_count = 0;
    if (idle(bucket)) drop(bucket, orders);
  }
  return orders.drop;
}

void Leases::drop(BucketId bucket, Orders& orders) {
  Bucket& b = buckets_[bucket];
  ZO_CHECK(b.state != State::kFetching);
  ZO_CHECK(b.lease_count == 0);
  if (b.state == State::kHere) orders.drop.push_back(bucket);
  bytes_now_ -= b.memory.bytes();
  b = Bucket();
}

bool Leases::idle(BucketId bucket) const {
  return buckets_[bucket].state != State::kAbsent && buckets_[bucket].lease_count == 0;
}

uint32_t Leases::live_count() const {
  return static_cast<uint32_t>(std::count_if(
      buckets_.begin(), buckets_.end(), [](const Bucket& b) { return b.state != State::kAbsent; }));
}

}  // namespace zoffload
