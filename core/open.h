// The composition root: builds the whole engine of one rank on this machine, from the user's
// request to a running control thread. The one core file that names concrete types.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/control_thread.h"
#include "core/plan/plan.h"

namespace zoffload {

struct OpenRequest {
  std::vector<BucketSpec> model;
  PlanRequest plan;  // see resolved_plan()
  std::string optimizer_name = "adamw";
  uint32_t threads = 0;                 // CPU workers; 0: one per core
  std::vector<std::string> nvme_paths;  // folders; may be empty when the plan puts nothing on NVMe
  std::string io_engine = "auto";       // "auto", "uring", "libaio", "threads"
  uint64_t io_block_bytes = 0;          // of one request; 0: the profile's, else 1 MiB
  uint32_t io_queue_depth = 0;          // per path; 0: the profile's, else measured
  std::string profile_file;             // from zoffload-bench profile; empty: none
  bool allow_memory_paths = false;      // nvme_paths that are memory, not a disk (tmpfs, ramfs)
  bool measure_paths = true;            // what no profile knows, where the tier is large
  bool verify_reads = true;
  EngineOptions engine;
};

// What the plan needs to know of the rest of the request: `threads`, the moments that the optimizer
// keeps, what the drives keep in flight at the depth and block of the config, the profile or the
// defaults, and, where subgroup_bytes is 0, the size of subgroups, such that all slots take 512 MiB
// at most. open_engine() plans with it.
PlanRequest resolved_plan(const OpenRequest& request);

// Plans, checks every budget and path, allocates, writes the swap files once, and starts.
// Everything that can fail at construction fails here; nothing is left behind then.
Result<std::unique_ptr<ControlThread>> open_engine(OpenRequest request);

}  // namespace zoffload
