// IoQueue on plain system calls: a few threads in pread, pwrite and fdatasync. For kernels and
// containers without io_uring; as fast for large transfers, at a little more CPU time.
//
// Used from the control thread, like every queue; only the threads inside are its own. After a fork
// the child's copy may only be destroyed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aio/file.h"
#include "aio/io_queue_options.h"
#include "aio/request_table.h"
#include "core/ports/io_queue.h"

namespace zoffload {

class ThreadQueue : public IoQueue {
 public:
  explicit ThreadQueue(const IoQueueOptions& options);
  ~ThreadQueue() override;

  Result<FileId> open(const std::string& path, uint64_t bytes) override;
  Result<std::string> register_arena(HostSpan arena) override;
  uint64_t alignment() const override;
  uint32_t depth() const override { return requests_.depth(); }
  uint32_t in_flight() const override { return requests_.in_flight(); }
  const char* name() const override { return "threads"; }
  void submit(const IoRequest& request, Completion& completion) override;
  uint32_t poll() override;
  void cancel() override;

 private:
  class Pool;
  struct Answer {
    uint32_t index;  // into requests_
    int64_t result;  // bytes moved or a negative errno
  };

  const pid_t owner_;
  FileTable files_;
  RequestTable requests_;
  bool arena_offered_ = false;
  bool cancelled_ = false;       // all that is in flight was cancelled
  std::vector<Answer> answers_;  // poll()'s own; kept for its memory
  std::unique_ptr<Pool> pool_;
};

}  // namespace zoffload
