// IoQueue on io_uring: one ring, its files and its arena registered where the kernel allows it.
//
// REQUIRES: one thread, the control thread, from create() to destruction; the kernel insists.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aio/file_queue.h"

struct io_uring_sqe;

namespace zoffload {

class Ring;

class IoUringQueue final : public FileQueue {
 public:
  // kUnsupported where this kernel has, or allows, no io_uring; says why and what would help.
  static Result<std::unique_ptr<IoUringQueue>> create(IoQueueOptions options);
  ~IoUringQueue() override;

  const char* name() const override { return "io_uring"; }
  const char* features() const;  // of the ring: "single_issuer, defer_taskrun, ..."
  bool arena_registered() const { return !arena_.empty(); }

 private:
  IoUringQueue(std::unique_ptr<Ring> ring, const IoQueueOptions& options);
  bool start(uint32_t index) override;
  bool collect(uint64_t ns_max) override;
  void ask_back(const std::vector<uint32_t>& indices) override;
  Result<std::string> offer(HostSpan arena) override;
  void attached(FileId file) override;
  void detaching(FileId file) override;

  void prepare(io_uring_sqe* sqe, uint32_t index);
  bool enter();
  void reap();
  void give_up_lost();
  bool in_one_slab(HostSpan memory) const;

  std::unique_ptr<Ring> ring_;
  uint32_t unanswered_ = 0;        // taken by the kernel, without a result; cancels included
  uint32_t lost_ = 0;              // completions that the kernel lost and that were given up
  std::vector<bool> fixed_files_;  // by FileId: in the kernel's table, at the same index
  bool file_table_ = false;        // the kernel has one
  HostSpan arena_;                 // the registered memory; empty without
};

}  // namespace zoffload
