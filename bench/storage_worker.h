// One thread's part of a storage rig: a file without a name, a queue and a pool of buffers, all of
// its own. It writes the file in full, then loads it as it is told.
//
// REQUIRES: one thread from set_up() to destruction.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aio/open_queue.h"
#include "bench/context.h"
#include "bench/histogram.h"
#include "bench/request_pump.h"
#include "core/sim/random.h"
#include "cuda/host_device.h"

namespace zoffload::bench {

struct WorkerSetup {
  std::string path;
  uint64_t file_bytes = 0;  // a multiple of kPageBytes
  uint64_t pool_bytes = 0;
  uint32_t depth_max = 0;
  IoEngine engine = IoEngine::kAuto;
  bool want_direct = true;
  bool direct_expected = false;
  bool fixed_buffers = true;
  int numa_node = -1;  // of the thread and its pool; below 0: any
  bool numa_required = false;
  bool verify = false;
  uint64_t seed = 1;
};

// What one run asks of every worker.
struct WorkerLoad {
  double read_share = 1;
  bool random = false;
  uint64_t block_bytes = 0;
  uint32_t depth = 0;
  SteadyTime measure_from;  // what ends from here ...
  SteadyTime end;           // ... to here is counted
};

struct WorkerSample {
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t checked_blocks = 0;
  double seconds = 0;  // measured; fewer than asked for if it was told to stop
  Histogram latency_ns;
};

class StorageWorker : private RequestSource {
 public:
  // `halt` is set by whoever fails, and ends the work of all; `context` may end it too.
  StorageWorker(const WorkerSetup& setup, Context& context, std::atomic<bool>& halt);
  ~StorageWorker() override;

  Status set_up();
  Status fill();  // what a budget or a signal cuts short is no error
  Status run(const WorkerLoad& load);

  const WorkerSample& sample() const { return sample_; }  // of the last run
  // Measured so far in this run, or filled. From any thread.
  uint64_t moved_bytes() const { return moved_bytes_.load(std::memory_order_relaxed); }

  void reset_moved() { moved_bytes_ = 0; }

  const char* engine_name() const { return queue_->name(); }
  bool direct() const { return direct_; }
  const std::string& why_buffered() const { return why_buffered_; }
  const std::string& why_unregistered() const { return why_unregistered_; }

 private:
  bool next(SteadyTime now, BlockRequest& request) override;
  void prepare(const BlockRequest& request, HostSpan memory) override;
  Status finished(const BlockRequest& request, HostSpan memory, SteadyTime submitted,
                  SteadyTime now) override;

  bool choose_block(BlockRequest& request);
  Status check(const BlockRequest& request, HostSpan memory);
  Status pump(uint64_t block_bytes, uint32_t depth);

  const WorkerSetup setup_;
  Context& context_;
  std::atomic<bool>& halt_;

  HostDevice device_;  // of the pool
  HostSpan pool_;
  std::unique_ptr<FileQueue> queue_;
  std::unique_ptr<RequestPump> pump_;
  bool direct_ = false;
  std::string why_buffered_;
  std::string why_unregistered_;

  // Of the run in progress.
  WorkerLoad load_;
  bool filling_ = false;
  uint64_t block_count_ = 0;
  uint64_t cursor_ = 0;  // the next block of a sequential run
  SteadyTime stopped_;   // when next() first saw a reason to stop
  bool stopping_ = false;
  WorkerSample sample_;
  std::atomic<uint64_t> moved_bytes_{0};

  Random random_;
  uint64_t stamp_ = 0;          // the last one; no two are equal
  std::vector<uint64_t> sums_;  // XXH3 of every page of the file; empty without `verify`
  std::vector<bool> busy_;      // by block: in flight; empty without `verify`
};

}  // namespace zoffload::bench
