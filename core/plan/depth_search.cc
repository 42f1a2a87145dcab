#include "core/plan/depth_search.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace zoffload {
namespace {

// A ratio that noise seldom brings about, and so many rounds are enough where each has it.
constexpr double kNoDoubt = 1.5;
constexpr size_t kNoDoubtRounds = 2;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

DepthSearch::DepthSearch(const Options& options)
    : options_(options), depth_(options.depth_min), done_(options.depth_min == options.depth_max) {
  ZO_CHECK(options.depth_min >= 1);
  ZO_CHECK(options.depth_min <= options.depth_max);
  ZO_CHECK(options.gain >= 1);
  ZO_CHECK(options.rounds > 0);
}

uint32_t DepthSearch::next_depth() const {
  ZO_CHECK(!done_);
  return deeper_is_next() ? deeper() : depth_;
}

void DepthSearch::report(uint64_t bytes, uint64_t ns) {
  ZO_CHECK(!done_);
  ZO_CHECK(bytes > 0);
  ZO_CHECK(ns > 0);
  const double rate = static_cast<double>(bytes) * 1e9 / static_cast<double>(ns);
  (deeper_is_next() ? deeper_rates_ : rates_).push_back(rate);
  if (rates_.size() == deeper_rates_.size()) compare();
}

uint32_t DepthSearch::times_deeper(uint32_t factor) const {
  return depth_ > options_.depth_max / factor ? options_.depth_max : factor * depth_;
}

// Rounds with an even number measure the deeper queue last, the others first.
bool DepthSearch::deeper_is_next() const {
  if (rates_.size() != deeper_rates_.size()) return rates_.size() > deeper_rates_.size();
  return rates_.size() % 2 == 1;
}

// After every round.
void DepthSearch::compare() {
  std::vector<double> ratios;
  for (size_t i = 0; i < rates_.size(); ++i) ratios.push_back(deeper_rates_[i] / rates_[i]);
  const double ratio = median(ratios);
  const bool no_doubt = ratios.size() == kNoDoubtRounds &&
                        *std::min_element(ratios.begin(), ratios.end()) >= kNoDoubt;
  if (ratios.size() < options_.rounds && !no_doubt) return;

  // Two doublings must bring more than one, else noise would find its way ever deeper.
  const double wanted = factor_ == 2 ? options_.gain : std::pow(options_.gain, 1.5);
  const bool is_faster = ratio >= wanted;
  bytes_per_s_ = median(is_faster ? deeper_rates_ : rates_);
  if (is_faster) depth_ = deeper();
  const bool last_word = is_faster || factor_ == 4 || deeper() == options_.depth_max;
  done_ = depth_ == options_.depth_max || (!is_faster && last_word);
  factor_ = is_faster || last_word ? 2 : 4;
  rates_.clear();
  deeper_rates_.clear();
}

}  // namespace zoffload
