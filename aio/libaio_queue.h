// IoQueue on the kernel's older asynchronous I/O (io_submit), by its system calls alone. Container
// profiles that deny io_uring mostly allow it. Only for direct files: with others io_submit() would
// block the control thread until the bytes have moved.
#pragma once

#include <linux/aio_abi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "aio/file_queue.h"

namespace zoffload {

class LibaioQueue final : public FileQueue {
 public:
  // kUnsupported where this kernel has, or allows, no further context; says why and what would
  // help.
  static Result<std::unique_ptr<LibaioQueue>> create(const IoQueueOptions& options);
  ~LibaioQueue() override;

  const char* name() const override { return "libaio"; }
  Status accepts(const File& file) const override;

 private:
  LibaioQueue(aio_context_t context, const IoQueueOptions& options);
  bool start(uint32_t index) override;
  bool collect(uint64_t ns_max) override;
  void ask_back(const std::vector<uint32_t>& indices) override;

  const aio_context_t context_;
  std::vector<io_event> events_;  // collect()'s own; as many as the depth
};

}  // namespace zoffload
