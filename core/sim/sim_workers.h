// Simulated CPU workers: at most `count` jobs at once, each for a random time; waiting jobs start
// in any order. A job runs, on the one thread there is, at the moment in which it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ports/workers.h"
#include "core/sim/in_flight.h"
#include "core/sim/random.h"
#include "core/sim/sim_clock.h"
#include "core/sim/trace.h"

namespace zoffload {

struct SimWorkersOptions {
  uint32_t count = 4;                 // of jobs that run at once
  uint64_t duration_ns_min = 10'000;  // of one job; uniform in between
  uint64_t duration_ns_max = 100'000;
  double error =
      0.0;  // probability that a job is not run and ends with kDeviceError, as if it had thrown
};

class SimWorkers : public Workers {
 public:
  // `clock` and `trace` outlive this; the trace may be null. `label` names the workers in the
  // trace.
  SimWorkers(SimClock& clock, const SimWorkersOptions& options, uint64_t seed, Trace* trace,
             std::string label = "workers");

  uint32_t count() const override { return options_.count; }
  void submit(Job& job, Completion& completion) override;
  uint32_t poll() override { return operations_.poll(); }

  uint32_t in_flight() const { return operations_.count(); }
  uint64_t error_count() const { return error_count_; }  // injected so far

 private:
  struct Waiting {
    Job* job;
    InFlight::Id id;
  };

  void start_jobs();
  void run(const Waiting& started, bool fails);

  SimClock& clock_;
  const SimWorkersOptions options_;
  const std::string label_;
  Random random_;
  uint64_t error_count_ = 0;
  uint32_t running_count_ = 0;
  std::vector<Waiting> waiting_;
  InFlight operations_;
};

}  // namespace zoffload
