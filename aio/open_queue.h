// The one place that chooses among the I/O queues. A new one is a file of its own and a case here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "aio/io_queue_options.h"
#include "core/base/status.h"
#include "core/ports/io_queue.h"

namespace zoffload {

enum class IoEngine : uint8_t { kAuto, kUring, kThreads };

struct ChosenQueue {
  std::unique_ptr<IoQueue> queue;
  std::string why;  // "io_uring is denied by seccomp (EPERM) ...: using 4 pread/pwrite threads"
};

// kAuto takes io_uring where it works, else threads. kUring is an error where it does not work.
// REQUIRES: on the control thread.
Result<ChosenQueue> open_queue(IoEngine engine, const IoQueueOptions& options);

}  // namespace zoffload
