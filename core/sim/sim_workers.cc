#include "core/sim/sim_workers.h"

#include <exception>
#include <new>
#include <utility>

#include "core/base/check.h"

namespace zoffload {
namespace {

Status run_job(Job& job, const std::string& label) {
  try {
    job.run();
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, label + ": a job ran out of memory");
  } catch (const std::exception& error) {
    return Status(Code::kDeviceError, label + ": " + error.what());
  } catch (...) {
    return Status(Code::kDeviceError, label + ": unknown exception");
  }
  return Status();
}

}  // namespace

SimWorkers::SimWorkers(SimClock& clock, const SimWorkersOptions& options, uint64_t seed,
                       Trace* trace, std::string label)
    : clock_(clock),
      options_(options),
      label_(std::move(label)),
      random_(seed),
      operations_(label_, clock, trace) {
  ZO_CHECK(options.count > 0);
  ZO_CHECK(options.duration_ns_min <= options.duration_ns_max);
}

void SimWorkers::submit(Job& job, Completion& completion) {
  waiting_.push_back({&job, operations_.start("job", completion)});
  // Not at once: jobs of one moment all wait together, so that their order is open too.
  operations_.at(clock_.now_ns(), [this] { start_jobs(); });
}

void SimWorkers::start_jobs() {
  while (running_count_ < options_.count && !waiting_.empty()) {
    std::swap(waiting_[random_.below(waiting_.size())], waiting_.back());
    const Waiting started = waiting_.back();
    waiting_.pop_back();
    ++running_count_;
    const uint64_t spread_ns = options_.duration_ns_max - options_.duration_ns_min;
    const uint64_t duration_ns = options_.duration_ns_min + random_.below(spread_ns + 1);
    const bool fails = random_.chance(options_.error);
    started.job->begin_ns = clock_.now_ns();
    operations_.at(clock_.now_ns() + duration_ns, [this, started, fails] { run(started, fails); });
  }
}

void SimWorkers::run(const Waiting& started, bool fails) {
  --running_count_;
  started.job->end_ns = clock_.now_ns();
  count_job(started.job->begin_ns, started.job->end_ns);
  start_jobs();
  if (fails) {
    ++error_count_;
    operations_.end(started.id, Status(Code::kDeviceError, label_ + ": injected error"));
    return;
  }
  operations_.end(started.id, run_job(*started.job, label_));
}

}  // namespace zoffload
