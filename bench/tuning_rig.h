// What a search over one path measures with: a storage rig for each engine, with as many workers as
// any candidate has, opened when it is first needed; and the path's part of the command's budgets,
// which decides how long a measurement may be. Every candidate is a result in the document, from
// its first measurement on.
//
// The measure is the bandwidth of a mix of reads and writes; half of each, at once, is what an
// update does to a drive.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/context.h"
#include "bench/path_tuner.h"
#include "bench/storage_rig.h"

namespace zoffload::bench {

class TuningRig {
 public:
  struct Budget {
    double seconds = std::numeric_limits<double>::infinity();
    uint64_t write_bytes = std::numeric_limits<uint64_t>::max();
  };

  // `read_share` of the requests read. `budget` counts from here.
  TuningRig(const std::string& path, const TuneSpace& space, double read_share, Budget budget,
            Context& context);

  // A measurement for tune_path(), short enough that the search fits into the budget.
  zoffload::Result<std::optional<double>> measure(const Candidate& candidate);

  // A longer one. Nothing, if it was cut short.
  zoffload::Result<std::optional<StorageSample>> run(const Candidate& candidate, double read_share,
                                                     double runtime_s);

  // REQUIRES: a measured candidate.
  std::string engine_name(const Candidate& candidate) const;

  // Whether every engine could measure here. Nothing is touched.
  Status check() const;

  // Of the latest measurement; 0 before the first.
  double write_bytes_per_s() const { return write_bytes_per_s_; }

  // Why there was nothing to return; kNone if there always was.
  Stop stopped() const { return stopped_; }

 private:
  // Null where a budget does not allow to open it.
  zoffload::Result<StorageRig*> rig_of(IoEngine engine);
  StorageSetup setup_of(IoEngine engine) const;
  double runtime_s() const;
  double seconds_left() const;
  uint64_t write_bytes_left() const;
  void keep(const Candidate& candidate, const StorageSample& sample, uint64_t written_bytes);

  const std::string path_;
  const TuneSpace space_;
  const double read_share_;
  const Budget budget_;
  Context& context_;
  const std::chrono::steady_clock::time_point started_;
  const uint64_t written_before_;

  Stop stopped_ = Stop::kNone;
  uint32_t measured_count_ = 0;
  double write_bytes_per_s_ = 0;  // of the latest measurement
  std::map<IoEngine, std::unique_ptr<StorageRig>> rigs_;
  std::vector<std::pair<Candidate, size_t>> results_;  // their places in the document
};

// Whether all paths could be measured: asked before the first one is.
Status check_tuning(const std::vector<std::string>& paths, const TuneSpace& space,
                    Context& context);

// The command's budgets shared out among its paths: each may use an equal part of what is left.
class BudgetShares {
 public:
  // `part` of the budgets is for searching; time counts from here.
  BudgetShares(const Options& options, size_t path_count, double part = 1);

  // REQUIRES: called at most once for each path.
  TuningRig::Budget next(const Context& context);

 private:
  const Options& options_;
  size_t paths_left_;
  const double part_;
  const std::chrono::steady_clock::time_point started_;
};

}  // namespace zoffload::bench
