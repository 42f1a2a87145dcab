// Workers on oneTBB: an arena of its own with `count` threads, none of them the control thread.
// Jobs start in the order in which they were submitted, and report to a list that poll() delivers,
// on the control thread, in the order in which they finished.
#pragma once

#include <cstdint>
#include <memory>

#include "core/ports/workers.h"

namespace zoffload {

class TbbWorkers final : public Workers {
 public:
  // REQUIRES: count >= 1. Where oneTBB's thread limit, which is process-wide, is too low for that,
  // raises it while this object lives; several such objects in one process share that limit.
  explicit TbbWorkers(uint32_t count);

  // Waits for the jobs in flight and delivers them. In a child after fork() there are no workers to
  // wait for: it leaves everything as it is.
  ~TbbWorkers() override;

  uint32_t count() const override { return count_; }

  // A job's std::bad_alloc becomes kOutOfMemory, any other exception kDeviceError.
  void submit(Job& job, Completion& completion) override;
  uint32_t poll() override;

 private:
  struct Shared;  // what the workers see

  const uint32_t count_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace zoffload
