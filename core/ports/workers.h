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
};

class Workers {
 public:
  virtual ~Workers() = default;  // REQUIRES: nothing in flight

  virtual uint32_t count() const = 0;  // of jobs that run at once

  // Runs `job` later, on some worker. The caller keeps it alive and untouched until the completion
  // is done.
  virtual void submit(Job& job, Completion& completion) = 0;

  virtual uint32_t poll() = 0;  // delivers what has finished; returns the number delivered
};

}  // namespace zoffload
