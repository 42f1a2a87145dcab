// Checks at run time how many requests a path should have in flight. Now and then it tries double
// and half of the depth in use on the traffic there is, in pairs of windows, and keeps what pays:
// more depth for 5 % more speed, less for a loss below 2 %, since what is past the knee only delays
// whoever waits for a read. Pure: it sees bytes and times, and says a number.
#pragma once

#include <cstdint>
#include <vector>

namespace zoffload {

class DepthTuner {
 public:
  static constexpr uint32_t kDepthMin = 4;  // unless depth_max is lower
  static constexpr uint32_t kPairs = 3;     // of a trial: one window at each of the two depths
  static constexpr uint32_t kRest = 94;  // windows between trials: 3 of 100 are at a trial's depth
  static constexpr uint32_t kFirstRest = 8;

  // REQUIRES: 0 < depth <= depth_max.
  DepthTuner(uint32_t depth, uint32_t depth_max);

  uint32_t depth() const;                           // to be used now, for a trial or for good
  uint32_t chosen_depth() const { return depth_; }  // for good

  // The path was saturated while it moved these bytes at depth(), which may be another afterwards.
  void window(uint64_t bytes, uint64_t ns);

 private:
  bool trying() const { return candidate_ != 0; }
  bool candidate_is_next() const;
  void begin_trial();
  void end_trial();

  const uint32_t depth_min_;
  const uint32_t depth_max_;
  uint32_t depth_;
  uint32_t candidate_ = 0;  // of the trial under way; 0: none is
  bool upward_ = true;      // the direction of the next trial
  uint32_t rest_count_ = kFirstRest;
  std::vector<double> speeds_;  // of the trial's windows, two for each pair
};

}  // namespace zoffload
