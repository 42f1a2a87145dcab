// IoQueue on io_uring: one ring, its files and its arena registered where the kernel allows it.
//
// REQUIRES: one thread, the control thread, from create() to destruction; the kernel insists. After
// a fork the child's copy may only be destroyed, and touches nothing of its parent's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "aio/file.h"
#include "aio/io_queue_options.h"
#include "aio/request_table.h"
#include "core/ports/io_queue.h"

struct io_uring_sqe;

namespace zoffload {

class Ring;

class IoUringQueue : public IoQueue {
 public:
  // kUnsupported where this kernel has, or allows, no io_uring; says why and what would help.
  static Result<std::unique_ptr<IoUringQueue>> create(IoQueueOptions options);
  ~IoUringQueue() override;

  Result<FileId> open(const std::string& path, uint64_t bytes) override;
  Result<std::string> register_arena(HostSpan arena) override;
  uint64_t alignment() const override;
  uint32_t depth() const override { return requests_.depth(); }
  uint32_t in_flight() const override { return requests_.in_flight(); }
  const char* name() const override { return "io_uring"; }
  void submit(const IoRequest& request, Completion& completion) override;
  uint32_t poll() override;
  void cancel() override;

  const char* features() const;  // of the ring: "single_issuer, defer_taskrun, ..."
  bool arena_registered() const { return !arena_.empty(); }

 private:
  IoUringQueue(std::unique_ptr<Ring> ring, const IoQueueOptions& options);
  uint32_t send();     // returns the number of requests delivered
  uint32_t receive();  // likewise
  void send_to_kernel();
  void prepare(io_uring_sqe* sqe, uint32_t index);
  bool take_result(uint32_t index, int result);
  bool in_one_slab(HostSpan memory) const;

  // How far a request has come, by its index in requests_.
  struct Progress {
    bool sent = false;       // the kernel has it
    bool cancelled = false;  // it is not sent again
  };

  const pid_t owner_;
  std::unique_ptr<Ring> ring_;
  FileTable files_;
  std::vector<bool> fixed_files_;  // by FileId: in the kernel's table, at the same index
  bool file_table_ = false;        // the kernel has one
  HostSpan arena_;                 // the registered memory; empty without
  bool arena_offered_ = false;

  RequestTable requests_;
  std::vector<Progress> progress_;
  std::deque<uint32_t> to_send_;  // request indices, oldest first
};

}  // namespace zoffload
