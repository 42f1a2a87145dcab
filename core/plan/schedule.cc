#include "core/plan/schedule.h"

#include <algorithm>

namespace zoffload {

namespace {

void append_new(std::vector<BucketId>& order, BucketId bucket) {
  if (std::find(order.begin(), order.end(), bucket) == order.end()) order.push_back(bucket);
}

}  // namespace

void ScheduleBook::begin(uint64_t signature) {
  if (open_) end();
  open_ = true;
  signature_ = signature;
  accesses_.clear();
  followed_ = find_agreeing();
}

void ScheduleBook::access(BucketId bucket) {
  if (!open_) begin(0);
  const size_t position = accesses_.size();
  accesses_.push_back(bucket);
  if (followed_ == kNone) return;
  const std::vector<BucketId>& expected = schedules_[followed_].accesses;
  if (position < expected.size() && expected[position] == bucket) return;
  ++deviation_count_;
  followed_ = find_agreeing();
}

void ScheduleBook::end() {
  if (!open_) return;
  open_ = false;
  followed_ = kNone;
  if (accesses_.empty()) return;
  std::erase_if(schedules_, [&](const Schedule& schedule) {
    return schedule.signature == signature_ && schedule.accesses == accesses_;
  });
  if (schedules_.size() == kSchedulesMax) schedules_.erase(schedules_.begin());
  schedules_.push_back({signature_, accesses_});
}

std::vector<BucketId> ScheduleBook::upcoming(uint32_t count) const {
  std::vector<BucketId> next;
  if (followed_ == kNone) return next;
  const std::vector<BucketId>& expected = schedules_[followed_].accesses;
  for (size_t i = accesses_.size(); i < expected.size() && next.size() < count; ++i) {
    append_new(next, expected[i]);
  }
  return next;
}

std::vector<BucketId> ScheduleBook::first_use_order() const {
  std::vector<BucketId> order;
  if (schedules_.empty()) return order;
  for (BucketId bucket : schedules_.back().accesses) append_new(order, bucket);
  return order;
}

uint64_t ScheduleBook::hash() const {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (BucketId bucket : accesses_) {
    hash ^= bucket;
    hash *= 0x100000001b3u;
  }
  return hash;
}

size_t ScheduleBook::find_agreeing() const {
  for (size_t i = schedules_.size(); i > 0; --i) {
    const Schedule& schedule = schedules_[i - 1];
    if (schedule.signature != signature_) continue;
    if (schedule.accesses.size() < accesses_.size()) continue;
    if (std::equal(accesses_.begin(), accesses_.end(), schedule.accesses.begin())) return i - 1;
  }
  return kNone;
}

}  // namespace zoffload
