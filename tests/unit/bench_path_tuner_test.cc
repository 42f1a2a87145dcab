#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "bench/path_tuner.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A drive on which a request takes a fixed time plus its share of the bandwidth, until the drive is
// full.
struct Drive {
  double bytes_per_s = 3e9;
  double request_s = 0.5e-3;         // of one request alone, beside its bytes
  double worker_bytes_per_s = 1e18;  // what one worker can issue
  double block_overhead_bytes = 0;   // as if each request were so much longer
  double threads_share = 1;          // of the speed with IoEngine::kThreads

  double rate(const Candidate& candidate) const {
    const double block = static_cast<double>(candidate.block_bytes);
    const double in_flight = static_cast<double>(candidate.in_flight_bytes());
    const double alone = in_flight / (request_s + block / bytes_per_s);
    const double full = bytes_per_s * block / (block + block_overhead_bytes);
    const double issued = worker_bytes_per_s * candidate.workers;
    const double share = candidate.engine == IoEngine::kThreads ? threads_share : 1;
    return std::min({alone, full, issued}) * share;
  }
};

struct Rig {
  Drive drive;
  double noise = 0;
  uint64_t seed = 1;
  uint32_t budget = ~0u;  // measurements
  std::vector<Candidate> measured = {};

  Tuned tune(const TuneSpace& space) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(1, noise);
    const Measure measure = [&](const Candidate& candidate) -> Result<std::optional<double>> {
      if (measured.size() == budget) return std::optional<double>();
      measured.push_back(candidate);
      const double factor = noise > 0 ? std::max(0.1, normal(random)) : 1;
      return std::optional(drive.rate(candidate) * factor);
    };
    Result<Tuned> tuned = tune_path(space, measure);
    EXPECT_TRUE(tuned.ok());
    return *tuned;
  }
  template <typename T>
  using Result = zoffload::Result<T>;
};

TuneSpace wide_space() {
  TuneSpace space;
  space.workers = {1, 2, 4};
  space.engines = {IoEngine::kUring, IoEngine::kThreads};
  return space;
}

// Every candidate that the search could have chosen.
std::vector<Candidate> grid(const TuneSpace& space) {
  std::vector<Candidate> all;
  for (uint64_t block_bytes : space.block_bytes) {
    for (uint32_t depth = 1; depth <= space.depth_max; depth *= 2) {
      if (depth > 1 && depth * block_bytes > space.in_flight_bytes_max) continue;
      for (uint32_t workers : space.workers) {
        for (IoEngine engine : space.engines) {
          all.push_back({block_bytes, depth, workers, engine});
        }
      }
    }
  }
  return all;
}

Drive any_drive(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto among = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random));
  };
  Drive drive;
  drive.bytes_per_s = among(2e8, 14e9);
  drive.request_s = among(20e-6, 2e-3);
  drive.worker_bytes_per_s = random() % 2 == 0 ? 1e18 : among(1e9, 8e9);
  drive.block_overhead_bytes = random() % 2 == 0 ? 0 : among(16e3, 512e3);
  drive.threads_share = among(0.7, 1.3);
  return drive;
}

// Goal: nothing that could have been chosen is much faster, and nothing is used that does not pay.
// Method: exact drives of many kinds by seed, against the whole grid.
TEST(PathTuner, FindsNearlyTheFastest) {
  const TuneSpace space = wide_space();
  uint32_t good = 0;
  uint32_t wasteful = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rig rig{.drive = any_drive(seed)};
    const Tuned tuned = rig.tune(space);
    double fastest = 0;
    for (const Candidate& candidate : grid(space)) {
      fastest = std::max(fastest, rig.drive.rate(candidate));
    }
    EXPECT_TRUE(tuned.complete);
    EXPECT_GE(rig.drive.rate(tuned.best), 0.75 * fastest) << "seed " << seed;
    good += rig.drive.rate(tuned.best) >= 0.9 * fastest;
    EXPECT_EQ(tuned.bytes_per_s, rig.drive.rate(tuned.best)) << "seed " << seed;
    EXPECT_LE(rig.measured.size(), measurements_max(space)) << "seed " << seed;
    Candidate shallower = tuned.best;
    shallower.depth /= 4;
    if (shallower.depth == 0) continue;
    wasteful += rig.drive.rate(shallower) >= 0.96 * rig.drive.rate(tuned.best);
  }
  EXPECT_GE(good, 285u);
  EXPECT_LE(wasteful, 3u);  // one coordinate at a time does not see every way to be shallower
}

// Goal: noise costs little, and does not lead the search away from what it has measured to be
// faster. Method: the same drives with a deviation of 5 % in every measurement.
TEST(PathTuner, NoiseCostsLittle) {
  const TuneSpace space = wide_space();
  uint32_t good = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rig rig{.drive = any_drive(seed), .noise = 0.05, .seed = seed};
    const Tuned tuned = rig.tune(space);
    double fastest = 0;
    for (const Candidate& candidate : grid(space)) {
      fastest = std::max(fastest, rig.drive.rate(candidate));
    }
    good += rig.drive.rate(tuned.best) >= 0.8 * fastest;
    for (const Tried& tried : tuned.tried) {
      if (tried.bandwidth.values.size() < space.rounds) continue;
      EXPECT_GE(tuned.bytes_per_s * space.gain, tried.bandwidth.median()) << "seed " << seed;
    }
  }
  EXPECT_GE(good, 285u);
}

// Goal: what makes no difference is left as cheap as it can be. Method: a drive that one request
// fills; one that needs 8 MiB in flight, in whatever form.
TEST(PathTuner, TiesGoToTheCheapest) {
  Rig full{.drive = {.request_s = 0}};
  const TuneSpace space = wide_space();
  EXPECT_EQ(full.tune(space).best, (Candidate{kMiB, 1, 1, IoEngine::kUring}));

  const Measure measure = [](const Candidate& candidate) {
    const double full_at = 8.0 * kMiB;
    const auto in_flight = static_cast<double>(candidate.in_flight_bytes());
    return zoffload::Result<std::optional<double>>(3e9 * std::min(1.0, in_flight / full_at));
  };
  EXPECT_EQ(tune_path(space, measure)->best, (Candidate{kMiB, 8, 1, IoEngine::kUring}));
}

// Goal: each of the four coordinates is moved where it pays. Method: drives on which one does.
TEST(PathTuner, EveryCoordinateMoves) {
  const auto best = [](const Drive& drive) { return Rig{.drive = drive}.tune(wide_space()).best; };
  const Drive slow_to_answer = {.bytes_per_s = 8e9, .request_s = 2e-3};
  EXPECT_EQ(best(slow_to_answer).in_flight_bytes(), 16 * kMiB);
  const Drive dear_requests = {.block_overhead_bytes = 1e6};
  EXPECT_EQ(best(dear_requests).block_bytes, 4 * kMiB);
  const Drive slow_worker = {.worker_bytes_per_s = 1e9};
  EXPECT_EQ(best(slow_worker).workers, 4u);
  const Drive for_threads = {.threads_share = 1.5};
  EXPECT_EQ(best(for_threads).engine, IoEngine::kThreads);
  const Drive hardly_for_threads = {.threads_share = 1.02};
  EXPECT_EQ(best(hardly_for_threads).engine, IoEngine::kUring);
}

// Goal: no candidate has the first place of every round. Method: the order in which block sizes
// are measured on a drive where depth 1 is enough.
TEST(PathTuner, OrderRotates) {
  TuneSpace space;
  space.block_bytes = {kMiB, 2 * kMiB, 4 * kMiB};
  Rig rig{.drive = {.request_s = 0}};
  rig.tune(space);
  std::vector<uint64_t> blocks;
  for (auto i = rig.measured.end() - 9; i != rig.measured.end(); ++i) {
    blocks.push_back(i->block_bytes / kMiB);
  }
  EXPECT_EQ(blocks, (std::vector<uint64_t>{1, 2, 4, 2, 4, 1, 4, 1, 2}));
}

// Goal: whenever the budget ends, the best so far is the answer, and says so until a whole pass is
// done. Method: every budget from none to enough.
TEST(PathTuner, BudgetEndsItWithTheBestSoFar) {
  const TuneSpace space = wide_space();
  const Drive drive = {.bytes_per_s = 6e9, .request_s = 1e-3, .worker_bytes_per_s = 2e9};
  Rig whole{.drive = drive};
  const Tuned best = whole.tune(space);
  double previous = 0;
  uint32_t complete_count = 0;
  for (uint32_t budget = 0; budget < whole.measured.size(); ++budget) {
    Rig rig{.drive = drive, .budget = budget};
    const Tuned tuned = rig.tune(space);
    EXPECT_TRUE(tuned.complete || complete_count == 0) << budget;
    complete_count += tuned.complete;
    EXPECT_EQ(rig.measured.size(), budget);
    EXPECT_EQ(tuned.tried.empty(), budget == 0);
    const double rate = drive.rate(tuned.best);
    EXPECT_GE(rate * space.gain * space.gain, previous) << budget;  // but for ties given away
    previous = rate;
  }
  EXPECT_EQ(best.bytes_per_s, drive.rate(best.best));
  EXPECT_TRUE(best.complete);
  EXPECT_GT(complete_count, 0u);  // in the second pass
  EXPECT_LT(complete_count, whole.measured.size() / 2);
}

// Goal: an error of the drive is an error of the search, at once. Method: the tenth measurement
// fails.
TEST(PathTuner, ErrorsEndIt) {
  uint32_t count = 0;
  const Measure measure = [&](const Candidate&) -> zoffload::Result<std::optional<double>> {
    if (++count == 10) return Status(Code::kIoError, "the drive fell off");
    return std::optional(1e9);
  };
  const zoffload::Result<Tuned> tuned = tune_path(TuneSpace(), measure);
  ASSERT_FALSE(tuned.ok());
  EXPECT_EQ(tuned.status().message(), "the drive fell off");
  EXPECT_EQ(count, 10u);
}

// Goal: limits hold, and a drive that moved nothing in time is no fault. Method: small limits, and
// a drive that never moves.
TEST(PathTuner, StaysWithinItsLimits) {
  TuneSpace space = wide_space();
  space.depth_max = 6;
  space.in_flight_bytes_max = 3 * kMiB;
  Rig rig{.drive = {.bytes_per_s = 100e9, .request_s = 5e-3}};
  rig.tune(space);
  for (const Candidate& candidate : rig.measured) {
    EXPECT_LE(candidate.depth, 6u);
    if (candidate.depth > 1) {
      EXPECT_LE(candidate.depth * candidate.block_bytes, 3 * kMiB);
    }
  }
  Rig still{.drive = {.bytes_per_s = 1e-9}};
  EXPECT_EQ(still.tune(space).best.depth, 1u);
}

}  // namespace
}  // namespace zoffload::bench
