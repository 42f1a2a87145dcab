// Every combination of the lists of values that the options have, measured again and again in an
// order that changes: a place in a round must not decide.
#pragma once

#include <cstdint>

#include "bench/context.h"
#include "bench/storage_rig.h"
#include "core/base/status.h"

namespace zoffload::bench {

struct IoWorkload {
  double read_share = 1;
  bool random = false;

  const char* name() const {
    return read_share == 1 ? "read" : read_share == 0 ? "write" : "mixed";
  }
};

struct SweepPlan {
  uint64_t fill_bytes = 0;  // what the files take
  double runs = 0;          // measurements, repeats included
};
SweepPlan plan_sweep(const Options& options);

// The rig that serves every combination with this engine.
StorageSetup rig_setup(const Options& options, IoEngine engine);

// Whether the sweep could begin; nothing is written.
Status check_sweep(const Options& options);

// A result for each combination, in context.document() from the first measurement on.
Status measure_sweep(const IoWorkload& workload, Context& context);

// What every result of a rig says of how it was measured.
Json io_params(const IoWorkload& workload, const StorageLoad& load, const StorageRig& rig,
               const Options& options);

// A warning where so little was written that a drive's cache may have taken it all.
void warn_if_short(uint64_t written_bytes, Context& context);

}  // namespace zoffload::bench
