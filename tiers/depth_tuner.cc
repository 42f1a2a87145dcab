#include "tiers/depth_tuner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/check.h"

namespace zoffload {
namespace {

constexpr double kGainMin = 1.05;  // for double the depth
constexpr double kLossMax = 0.98;  // for half of it

}  // namespace

DepthTuner::DepthTuner(uint32_t depth, uint32_t depth_max)
    : depth_min_(std::min(kDepthMin, depth)), depth_max_(depth_max), depth_(depth) {
  ZO_CHECK(depth > 0);
  ZO_CHECK(depth <= depth_max);
}

uint32_t DepthTuner::depth() const { return trying() && candidate_is_next() ? candidate_ : depth_; }

// The order within the pairs alternates, old new, new old, old new: a drive that grows faster or
// slower meanwhile must not favour either.
bool DepthTuner::candidate_is_next() const {
  const bool second = speeds_.size() % 2 == 1;
  const bool reversed = speeds_.size() / 2 % 2 == 1;
  return second != reversed;
}

void DepthTuner::window(uint64_t bytes, uint64_t ns) {
  ZO_CHECK(ns > 0);
  if (!trying()) {
    if (--rest_count_ == 0) begin_trial();
    return;
  }
  speeds_.push_back(static_cast<double>(bytes) / static_cast<double>(ns));
  if (speeds_.size() == 2 * kPairs) end_trial();
}

void DepthTuner::begin_trial() {
  const uint32_t up = std::min(2 * depth_, depth_max_);
  const uint32_t down = std::max(depth_ / 2, depth_min_);
  if (upward_ && up == depth_) upward_ = false;
  if (!upward_ && down == depth_) upward_ = true;
  rest_count_ = kRest;
  const uint32_t candidate = upward_ ? up : down;
  if (candidate != depth_) candidate_ = candidate;
}

void DepthTuner::end_trial() {
  std::array<double, kPairs> gains;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    double old_speed = speeds_[2 * pair];
    double new_speed = speeds_[2 * pair + 1];
    if (pair % 2 == 1) std::swap(old_speed, new_speed);
    gains[pair] = new_speed / old_speed;
  }
  std::nth_element(gains.begin(), gains.begin() + kPairs / 2, gains.end());
  const double gain = gains[kPairs / 2];
  const bool pays = upward_ ? gain >= kGainMin : gain > kLossMax;
  if (pays) depth_ = candidate_;
  if (!pays) upward_ = !upward_;  // else further the same way
  candidate_ = 0;
  speeds_.clear();
}

}  // namespace zoffload
