// Writing until a drive's speed breaks in. Many drives take writes into a fast cache first, of tens
// to hundreds of GB; what a training run gets is the speed behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/context.h"
#include "bench/io_sweep.h"
#include "core/base/status.h"

namespace zoffload::bench {

// Finds the knee in a curve of write speeds: the first second of three in a row that are below 70 %
// of the early median, which is that of the first five.
class KneeFinder {
 public:
  // One more stretch of writing. REQUIRES: seconds > 0.
  void add(double seconds, uint64_t bytes);

  bool found() const { return knee_bytes_.has_value(); }
  std::optional<uint64_t> knee_bytes() const { return knee_bytes_; }  // written before the knee
  double early_bytes_per_s() const;
  double sustained_bytes_per_s() const;  // from the knee on; the median of all without one
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<double> rates_;
  uint64_t bytes_ = 0;
  double slow_s_ = 0;             // the slow stretch that the curve ends in ...
  uint64_t slow_from_bytes_ = 0;  // ... what was written before it ...
  size_t slow_from_ = 0;          // ... and its first rate
  std::optional<uint64_t> knee_bytes_;
};

// Whether the options ask for a single combination.
Status check_sustained(const Options& options);

// Writes until the knee and --runtime more, or until the budgets of writes or time are used up.
Status measure_sustained(const IoWorkload& workload, Context& context);

}  // namespace zoffload::bench
