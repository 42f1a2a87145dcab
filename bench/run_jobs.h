// Jobs of one pass over the CPU workers, timed: what the measurements of arithmetic and of memory
// have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/ports/workers.h"

namespace zoffload::bench {

using Stopped = std::function<bool()>;  // true: come to an end now; an empty one never does
using Jobs = std::vector<std::unique_ptr<Job>>;

struct PassTime {
  double seconds = 0;
  double cpu_seconds = 0;  // of this process and its kernel work
  size_t done_count = 0;   // fewer than all if it was stopped
};

// Runs the jobs in order, twice as many in flight as run at once, and waits for them; dozes between
// two looks, as the control thread does.
zoffload::Result<PassTime> run_jobs(const Jobs& jobs, Workers& workers,
                                    const Stopped& stopped = {});

double now_s();      // on the steady clock
double cpu_now_s();  // that this process has used so far

}  // namespace zoffload::bench
