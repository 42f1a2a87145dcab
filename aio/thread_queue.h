// IoQueue on plain system calls: a few threads in pread, pwrite and fdatasync. For kernels and
// containers without io_uring; as fast for large transfers, at a little more CPU time.
//
// Used from the control thread, like every queue; only the threads inside are its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "aio/file_queue.h"

namespace zoffload {

class ThreadQueue final : public FileQueue {
 public:
  explicit ThreadQueue(const IoQueueOptions& options);
  ~ThreadQueue() override;

  const char* name() const override { return "threads"; }

 private:
  class Pool;
  struct Answer {
    uint32_t index;  // of the request
    int64_t result;  // bytes moved or a negative errno
  };

  bool start(uint32_t index) override;
  bool collect(uint64_t ns_max) override;
  void ask_back(const std::vector<uint32_t>& indices) override;

  std::vector<Answer> answers_;  // collect()'s own; kept for its memory
  std::unique_ptr<Pool> pool_;
};

}  // namespace zoffload
