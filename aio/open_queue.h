// The one place that chooses among the I/O queues. A new one is a file of its own and a case here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "aio/file_queue.h"
#include "aio/io_queue_options.h"
#include "core/base/status.h"

namespace zoffload {

enum class IoEngine : uint8_t { kAuto, kUring, kLibaio, kThreads };

// "auto", "uring", "libaio", "threads".
const char* io_engine_name(IoEngine engine);
std::optional<IoEngine> io_engine_named(const std::string& name);

struct ChosenQueue {
  std::unique_ptr<FileQueue> queue;
  std::string why;  // "io_uring is denied by seccomp (EPERM) ...: using 4 pread/pwrite threads"
};

// kAuto takes io_uring where it works, else libaio where it works and `direct_expected`, else
// threads. kUring and kLibaio are errors where they do not work. REQUIRES: on the control thread.
Result<ChosenQueue> open_queue(IoEngine engine, const IoQueueOptions& options);

}  // namespace zoffload
