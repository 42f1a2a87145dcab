#include "bench/path_tuner.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "core/plan/depth_search.h"

namespace zoffload::bench {
namespace {

constexpr uint32_t kPassesMax = 2;
constexpr uint32_t kDepthRounds = DepthSearch::Options().rounds;
constexpr double kUsualBlock = 1 << 20;  // that every layer below is made for

double from_usual_block(const Candidate& candidate) {
  return std::abs(std::log2(static_cast<double>(candidate.block_bytes) / kUsualBlock));
}

class Search {
 public:
  Search(const TuneSpace& space, const Measure& measure);
  zoffload::Result<Tuned> run();

 private:
  // Status where it ends: an error of measuring. The budget's end is ended_.
  Status search_depth(bool is_first);
  Status compare(const std::vector<Candidate>& others);
  void settle(Tuned& tuned) const;
  zoffload::Result<std::optional<double>> measure_once(const Candidate& candidate);

  uint32_t depth_max(uint64_t block_bytes) const;
  Candidate at_equal_bytes(Candidate candidate) const;
  std::vector<Candidate> other_blocks() const;
  std::vector<Candidate> other_workers() const;
  std::vector<Candidate> other_engines() const;
  size_t choose(const std::vector<Candidate>& candidates,
                const std::vector<Samples>& samples) const;
  bool is_cheaper(const Candidate& a, const Candidate& b) const;

  const TuneSpace& space_;
  const Measure& measure_;
  Candidate current_;
  std::vector<Tried> tried_;
  bool ended_ = false;
};

Search::Search(const TuneSpace& space, const Measure& measure) : space_(space), measure_(measure) {
  ZO_CHECK(!space.block_bytes.empty());
  ZO_CHECK(!space.workers.empty());
  ZO_CHECK(!space.engines.empty());
  ZO_CHECK(space.depth_max > 0);
  ZO_CHECK(space.rounds > 0);
  ZO_CHECK(space.gain >= 1);
  const auto nearer = [](uint64_t a, uint64_t b) {
    return from_usual_block({.block_bytes = a}) < from_usual_block({.block_bytes = b});
  };
  current_ = {*std::min_element(space.block_bytes.begin(), space.block_bytes.end(), nearer), 1,
              space.workers.front(), space.engines.front()};
}

zoffload::Result<Tuned> Search::run() {
  bool complete = false;
  for (uint32_t pass = 0; pass < kPassesMax && !ended_; ++pass) {
    ZO_TRY(search_depth(pass == 0));
    const Candidate before = current_;
    ZO_TRY(compare(other_blocks()));
    ZO_TRY(compare(other_workers()));
    ZO_TRY(compare(other_engines()));
    complete = complete || !ended_;
    if (current_ == before) break;
  }
  Tuned tuned{current_, 0, std::move(tried_), complete};
  settle(tuned);
  return tuned;
}

// Of all that was measured as often as a comparison takes, or as often as anything was.
void Search::settle(Tuned& tuned) const {
  size_t often = 0;
  for (const Tried& tried : tuned.tried) often = std::max(often, tried.bandwidth.values.size());
  often = std::min<size_t>(often, space_.rounds);
  std::vector<Candidate> candidates;
  std::vector<Samples> samples;
  for (const Tried& tried : tuned.tried) {
    if (tried.bandwidth.values.size() < often) continue;
    candidates.push_back(tried.candidate);
    samples.push_back(tried.bandwidth);
  }
  if (candidates.empty()) return;
  const size_t chosen = choose(candidates, samples);
  tuned.best = candidates[chosen];
  tuned.bytes_per_s = samples[chosen].median();
}

// A later search begins not far below the depth at hand; left half way, it knows less than the
// search before it.
Status Search::search_depth(bool is_first) {
  const uint32_t most = depth_max(current_.block_bytes);
  const uint32_t least = is_first ? 1 : std::clamp(current_.depth / 4, 1u, most);
  DepthSearch search({.depth_min = least, .depth_max = most, .gain = space_.gain});
  while (!search.done()) {
    Candidate candidate = current_;
    candidate.depth = search.next_depth();
    ZO_ASSIGN_OR_RETURN(const std::optional<double> rate, measure_once(candidate));
    if (!rate) break;
    constexpr double kSecond = 1e9;
    search.report(static_cast<uint64_t>(std::llround(*rate)), static_cast<uint64_t>(kSecond));
  }
  if (search.done() || is_first) current_.depth = search.best();
  return Status();
}

// Moves to one of `candidates`, or stays at the current one, which takes part. Only whole rounds
// count; if there is none, it stays.
Status Search::compare(const std::vector<Candidate>& others) {
  if (others.empty() || ended_) return Status();
  std::vector<Candidate> candidates = {current_};
  candidates.insert(candidates.end(), others.begin(), others.end());
  std::vector<Samples> samples(candidates.size());
  for (uint32_t round = 0; round < space_.rounds; ++round) {
    std::vector<double> rates(candidates.size());
    for (size_t turn = 0; turn < candidates.size(); ++turn) {
      const size_t i = (round + turn) % candidates.size();
      ZO_ASSIGN_OR_RETURN(const std::optional<double> rate, measure_once(candidates[i]));
      if (!rate) break;
      rates[i] = *rate;
    }
    if (ended_) break;
    for (size_t i = 0; i < rates.size(); ++i) samples[i].values.push_back(rates[i]);
  }
  if (!samples.front().empty()) current_ = candidates[choose(candidates, samples)];
  return Status();
}

zoffload::Result<std::optional<double>> Search::measure_once(const Candidate& candidate) {
  ZO_ASSIGN_OR_RETURN(std::optional<double> rate, measure_(candidate));
  ended_ = !rate.has_value();
  if (ended_) return rate;
  rate = std::max(*rate, 1.0);  // a drive too slow for one request in its time is the slowest
  const auto is_same = [&](const Tried& tried) { return tried.candidate == candidate; };
  auto entry = std::find_if(tried_.begin(), tried_.end(), is_same);
  if (entry == tried_.end()) entry = tried_.insert(entry, Tried{candidate, {}});
  entry->bandwidth.values.push_back(*rate);
  return rate;
}

uint32_t Search::depth_max(uint64_t block_bytes) const {
  const uint64_t fits = std::max<uint64_t>(space_.in_flight_bytes_max / block_bytes, 1);
  return static_cast<uint32_t>(std::min<uint64_t>(fits, space_.depth_max));
}

// The candidate with the depth that brings the bytes in flight nearest to the current ones; two at
// least where there are two now, because requests that do not overlap show nothing of the block.
Candidate Search::at_equal_bytes(Candidate candidate) const {
  const uint64_t unit = candidate.block_bytes * candidate.workers;
  const uint64_t depth = (current_.in_flight_bytes() + unit / 2) / unit;
  const uint64_t most = depth_max(candidate.block_bytes);
  const uint64_t least = std::min<uint64_t>({2, current_.depth, most});
  candidate.depth = static_cast<uint32_t>(std::clamp(depth, least, most));
  return candidate;
}

std::vector<Candidate> Search::other_blocks() const {
  std::vector<Candidate> others;
  for (uint64_t block_bytes : space_.block_bytes) {
    if (block_bytes == current_.block_bytes) continue;
    Candidate other = current_;
    other.block_bytes = block_bytes;
    others.push_back(at_equal_bytes(other));
  }
  return others;
}

std::vector<Candidate> Search::other_workers() const {
  std::vector<Candidate> others;
  for (uint32_t workers : space_.workers) {
    if (workers == current_.workers) continue;
    Candidate other = current_;
    other.workers = workers;
    others.push_back(at_equal_bytes(other));
  }
  return others;
}

std::vector<Candidate> Search::other_engines() const {
  std::vector<Candidate> others;
  for (IoEngine engine : space_.engines) {
    if (engine == current_.engine) continue;
    Candidate other = current_;
    other.engine = engine;
    others.push_back(other);
  }
  return others;
}

// The cheapest of those that the fastest does not beat by the gain.
size_t Search::choose(const std::vector<Candidate>& candidates,
                      const std::vector<Samples>& samples) const {
  double fastest = 0;
  for (const Samples& sample : samples) fastest = std::max(fastest, sample.median());
  std::optional<size_t> chosen;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (samples[i].median() * space_.gain < fastest) continue;
    if (!chosen || is_cheaper(candidates[i], candidates[*chosen])) chosen = i;
  }
  ZO_CHECK(chosen.has_value());
  return *chosen;
}

// Fewer bytes in flight are a shorter wait for whoever needs a block now; then less machinery.
bool Search::is_cheaper(const Candidate& a, const Candidate& b) const {
  const auto cost = [&](const Candidate& candidate) {
    const auto engine = std::find(space_.engines.begin(), space_.engines.end(), candidate.engine);
    return std::tuple(candidate.in_flight_bytes(), candidate.workers,
                      engine - space_.engines.begin(), from_usual_block(candidate));
  };
  return cost(a) < cost(b);
}

uint32_t comparisons(const TuneSpace& space) {
  const auto candidates = [](size_t count) { return count > 1 ? count : 0; };
  const size_t all = candidates(space.block_bytes.size()) + candidates(space.workers.size()) +
                     candidates(space.engines.size());
  return static_cast<uint32_t>(all) * space.rounds;
}

uint32_t doublings(const TuneSpace& space) {
  return static_cast<uint32_t>(std::ceil(std::log2(space.depth_max)));
}

}  // namespace

zoffload::Result<Tuned> tune_path(const TuneSpace& space, const Measure& measure) {
  return Search(space, measure).run();
}

uint32_t measurements_per_pass(const TuneSpace& space) {
  return 2 * kDepthRounds * doublings(space) + comparisons(space);
}

uint32_t measurements_max(const TuneSpace& space) {
  return kPassesMax * measurements_per_pass(space);
}

}  // namespace zoffload::bench
