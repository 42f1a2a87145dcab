// How one path wants to be used: a search over queue depth, block size, workers and engine for the
// fewest bytes in flight that are as fast as anything else. Coordinate descent: one of the four
// after the other, the depth first and by doubling (core/plan/depth_search.h), and once more if one
// of the others changed. Block sizes, workers and engines are compared at equal bytes in flight, in
// rounds whose order rotates, by the median of the rounds. The last word has a comparison of all
// that was tried, so that noise leads nowhere that was worse.
//
// Pure: what a candidate is worth is the caller's affair, as is the time that it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "aio/open_queue.h"
#include "bench/samples.h"
#include "core/base/status.h"

namespace zoffload::bench {

struct Candidate {
  uint64_t block_bytes = 1 << 20;
  uint32_t depth = 8;  // of each worker
  uint32_t workers = 1;
  IoEngine engine = IoEngine::kAuto;

  uint64_t in_flight_bytes() const { return block_bytes * depth * workers; }
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

struct TuneSpace {
  // Each with at least one entry; the search begins with the first engine, the first number of
  // workers, and the block size nearest to 1 MiB.
  std::vector<uint64_t> block_bytes = {256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20};
  std::vector<uint32_t> workers = {1};
  std::vector<IoEngine> engines = {IoEngine::kAuto};
  uint32_t depth_max = 64;
  uint64_t in_flight_bytes_max = uint64_t{64} << 20;  // of each worker; at least one block
  uint32_t rounds = 3;                                // in which candidates are compared
  double gain = 1.02;  // a faster candidate must be so much faster than a cheaper one
};

// Bytes per second of a candidate, measured once; nothing when the budget is used up, which ends
// the search.
using Measure = std::function<zoffload::Result<std::optional<double>>(const Candidate&)>;

struct Tried {
  Candidate candidate;
  Samples bandwidth;
};

struct Tuned {
  Candidate best;
  double bytes_per_s = 0;    // its median; 0 if it was never measured
  std::vector<Tried> tried;  // in the order of their first measurement
  bool complete = false;     // false: the budget ended the first pass; `best` is the best so far
};

// An error of `measure` is the error returned.
zoffload::Result<Tuned> tune_path(const TuneSpace& space, const Measure& measure);

// How many measurements one pass takes at most, and the whole search; most searches need one pass.
uint32_t measurements_per_pass(const TuneSpace& space);
uint32_t measurements_max(const TuneSpace& space);

}  // namespace zoffload::bench
