// IoQueue on io_uring: one ring, its files and its memory registered where the kernel allows it.
//
// REQUIRES: one thread, the control thread, from create() to destruction; the kernel insists.
#pragma once

#include <cstdint>
#include <map>
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
  Result<std::string> register_arena(HostSpan arena) override;
  void unregister_arena(HostSpan arena) override;
  const char* features() const;  // of the ring: "single_issuer, defer_taskrun, ..."
  bool memory_registered() const { return !slabs_.empty(); }

 private:
  IoUringQueue(std::unique_ptr<Ring> ring, const IoQueueOptions& options);
  bool start(uint32_t index) override;
  bool collect(uint64_t ns_max) override;
  void ask_back(const std::vector<uint32_t>& indices) override;
  void attached(FileId file) override;
  void detaching(FileId file) override;

  void prepare(io_uring_sqe* sqe, uint32_t index);
  bool enter();
  void reap();
  void give_up_lost();

  // A piece of registered memory, and its place in the kernel's table.
  struct Slab {
    uint64_t bytes;
    uint32_t place;
  };
  using Slabs = std::map<uintptr_t, Slab>;  // by address; disjoint

  int set_place(uint32_t place, HostSpan memory);
  int add_slab(HostSpan memory);
  const Slab* slab_of(HostSpan memory) const;  // null: in none, or across two

  std::unique_ptr<Ring> ring_;
  uint32_t unanswered_ = 0;        // taken by the kernel, without a result; cancels included
  uint32_t lost_ = 0;              // completions that the kernel lost and that were given up
  std::vector<bool> fixed_files_;  // by FileId: in the kernel's table, at the same index
  bool file_table_ = false;        // the kernel has one
  bool memory_table_ = false;      // and one for memory
  std::vector<uint32_t> places_;   // of that table, free
  Slabs slabs_;
};

}  // namespace zoffload
