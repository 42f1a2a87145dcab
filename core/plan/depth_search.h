// How many requests in flight a path needs: doubles the depth for as long as that makes it faster
// by `gain`. Where twice the depth does not, four times has the last word (for 1.5 times the gain),
// since small gains in a row add up. Beyond that knee a deeper queue only adds latency. Pure: the
// caller measures at next_depth(), by whatever clock it has, and reports.
//
// A depth is compared with a deeper one in rounds, each of one measurement at either, in
// alternating order, so that neither a drifting disk nor the place in a round decides; the median
// of the rounds' ratios does. A ratio that leaves no doubt ends a comparison in its second round.
// From 1 to 64 that is at most 48 measurements, and 28 on a disk with a knee at 8.
#pragma once

#include <cstdint>
#include <vector>

namespace zoffload {

class DepthSearch {
 public:
  struct Options {
    uint32_t depth_min = 1;
    uint32_t depth_max = 64;
    double gain = 1.05;   // what more depth must bring, as a ratio
    uint32_t rounds = 4;  // of each comparison; even, so that drift cancels out
  };

  // REQUIRES: 1 <= depth_min <= depth_max, gain >= 1, rounds > 0.
  explicit DepthSearch(const Options& options);

  bool done() const { return done_; }

  // What to measure next. REQUIRES: not done().
  uint32_t next_depth() const;

  // What was moved in what time at next_depth(). REQUIRES: not done(); both above 0.
  void report(uint64_t bytes, uint64_t ns);

  // The depth to use; before done(), the deepest one that has proved its gain, so a caller may stop
  // whenever it likes.
  uint32_t best() const { return depth_; }
  // The median bandwidth at best(); 0 before its first comparison is complete.
  double bytes_per_s() const { return bytes_per_s_; }

 private:
  uint32_t times_deeper(uint32_t factor) const;
  uint32_t deeper() const { return times_deeper(factor_); }
  bool deeper_is_next() const;
  void compare();

  const Options options_;
  uint32_t depth_;
  uint32_t factor_ = 2;  // of the comparison that is going on
  double bytes_per_s_ = 0;
  bool done_;

  // The comparison that is going on, by round.
  std::vector<double> rates_;
  std::vector<double> deeper_rates_;
};

}  // namespace zoffload
