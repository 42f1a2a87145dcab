// The order in which passes (a forward and its backward, an eval, a generate step) ask for buckets,
// learned by watching and used to look ahead. Pure: no time, no I/O.
//
// Several schedules are kept, each under the caller's signature of the pass. A pass follows the
// schedule of its signature that ended last and agrees with it so far; where it deviates it changes
// to another one that agrees, or runs on demand to its end. A deviation costs speed, never
// correctness, and throws nothing away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/types.h"

namespace zoffload {

class ScheduleBook {
 public:
  void begin(uint64_t signature);  // a pass starts; one that is still open ends
  void access(BucketId bucket);    // the pass asks for this bucket; opens a pass if none is open
  void end();                      // the pass is over: its order becomes a schedule

  // The next `count` distinct buckets that the followed schedule asks for; fewer, or none, where it
  // is not known.
  std::vector<BucketId> upcoming(uint32_t count) const;

  // Distinct buckets in the order in which the last ended pass first asked for them.
  std::vector<BucketId> first_use_order() const;

  uint64_t deviation_count() const { return deviation_count_; }
  uint64_t hash() const;  // of all accesses of the current pass; ranks compare it

 private:
  struct Schedule {
    uint64_t signature;
    std::vector<BucketId> accesses;
  };
  static constexpr size_t kSchedulesMax = 16;
  static constexpr size_t kNone = ~size_t{0};

  size_t find_agreeing()
      const;  // the latest schedule that starts as the current pass did and goes on

  std::vector<Schedule> schedules_;  // least recently ended first
  bool open_ = false;
  uint64_t signature_ = 0;
  std::vector<BucketId> accesses_;  // of the current pass
  size_t followed_ = kNone;         // index into schedules_
  uint64_t deviation_count_ = 0;
};

}  // namespace zoffload
