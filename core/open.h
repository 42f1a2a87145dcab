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
  PlanRequest plan;  // plan.workers is set from `threads`
  std::string optimizer_name = "adamw";
  uint32_t threads = 0;                 // CPU workers; 0: one per core
  std::vector<std::string> nvme_paths;  // folders; may be empty when the plan puts nothing on NVMe
  std::string io_engine = "auto";       // "auto", "uring", "threads"
  uint64_t io_block_bytes = 1 << 20;
  uint32_t io_queue_depth = 32;  // per path
  bool verify_reads = true;
  EngineOptions engine;
};

// Plans, checks every budget and path, allocates, writes the swap files once, and starts.
// Everything that can fail at construction fails here; nothing is left behind then.
Result<std::unique_ptr<ControlThread>> open_engine(OpenRequest request);

}  // namespace zoffload
