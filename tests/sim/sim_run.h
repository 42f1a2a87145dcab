// One simulated training run: N engines, each with its own simulated disk, device and workers, one
// communicator and one clock among them, and on each rank a user who trains the toy model through
// the engine's verbs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/sim/sim_disk.h"
#include "tests/sim/toy_model.h"

namespace zoffload::sim_test {

struct RunResult {
  std::vector<Status> status;                   // by rank: the first error its user saw
  std::vector<std::vector<std::byte>> weights;  // of rank 0, by bucket; empty when a rank failed
  bool ranks_agree = true;                      // on the final weights, where all ended well
  bool hung = false;
  bool mismatch = false;  // some rank broke the order of collectives
  uint64_t trace_hash = 0;
  uint64_t hard_fault_count = 0;  // injected, of the kinds that may end a run
  uint64_t soft_fault_count = 0;  // injected, of the kinds that may not
  std::string wrong_books;        // what the reports of where time and bytes went do not add up to
  std::string last_lines;         // of the trace, for a failure report

  bool all_ok() const;
  std::string first_error() const;
};

RunResult run(const Scenario& scenario);

// A scenario drawn from a seed: world, model, state formats, placement, budgets, faults.
Scenario draw(uint64_t seed);

}  // namespace zoffload::sim_test
