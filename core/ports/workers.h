// CPU workers for the data plane. A job touches only the spans it was given.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/ports/completion.h"

namespace zoffload {

class Job {
 public:
  virtual ~Job() = default;
  virtual void run() = 0;  // on a worker thread; an exception becomes the completion's Status

  // When it ran, on the engine's clock. Written by the workers; known when the completion is done.
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

class Workers {
 public:
  virtual ~Workers() = default;  // REQUIRES: nothing in flight

  virtual uint32_t count() const = 0;  // of jobs that run at once

  // Runs `job` later, on some worker. The caller keeps it alive and untouched until the completion
  // is done.
  virtual void submit(Job& job, Completion& completion) = 0;

  virtual uint32_t poll() = 0;  // delivers what has finished; returns the number delivered

  uint64_t busy_ns() const { return busy_ns_; }  // of all workers, in jobs that were delivered

 protected:
  void count_job(uint64_t begin_ns, uint64_t end_ns) { busy_ns_ += end_ns - begin_ns; }

 private:
  uint64_t busy_ns_ = 0;
};

}  // namespace zoffload
