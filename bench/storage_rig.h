// Files on one or several paths, written in full, and the threads that load them: the measuring
// loop of `io`, `tune` and `profile`. Every worker is a thread with a file, a queue and a pool of
// buffers of its own on one path; it keeps `depth` requests in flight and cycles through the pool.
//
// Files have no name (O_TMPFILE) where the file system allows it; elsewhere the name is removed at
// once. So even kill -9 leaves nothing behind.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aio/open_queue.h"
#include "bench/context.h"
#include "bench/histogram.h"
#include "bench/team.h"

namespace zoffload::bench {

inline constexpr uint32_t kQueueDepthMax = 4096;

struct StorageSetup {
  std::vector<std::string> paths;
  uint64_t size_bytes = uint64_t{4} << 30;  // of each path's file; shared out among its workers
  uint32_t workers = 1;                     // per path
  IoEngine engine = IoEngine::kAuto;
  Direct direct = Direct::kAuto;
  bool fixed_buffers = true;
  uint64_t pool_bytes = uint64_t{256} << 20;  // per worker; as large as the engine's own
  uint64_t block_bytes_max = uint64_t{4} << 20;
  uint32_t depth_max = 64;
  uint64_t in_flight_bytes_max = 0;  // of a worker, at most; 0: depth_max * block_bytes_max
  bool verify = false;
  bool force = false;  // a path that is memory, not a disk
  uint64_t seed = 1;
};

struct StorageLoad {
  double read_share = 1;  // of the requests: 1 reads, 0 writes, 0.7 seven of ten read
  uint64_t block_bytes = 1 << 20;
  uint32_t depth = 8;    // per worker
  uint32_t workers = 0;  // per path, at most those of the setup; 0: all
  bool random = false;   // offsets in random order, else ascending and round again
  double warmup_s = 0;
  double runtime_s = 1;
};

struct StorageSample {
  uint64_t read_bytes = 0;  // while measuring
  uint64_t written_bytes = 0;
  double seconds = 0;
  double cpu_seconds = 0;
  Histogram latency_ns;                           // of requests, submit to completion
  std::vector<std::pair<double, double>> series;  // every 100 ms
  std::vector<double> path_bytes_per_s;           // by path
  double first_done_s = 0;                        // the first worker that ended
  double last_done_s = 0;
  uint64_t checked_blocks = 0;
  Stop stopped = Stop::kNone;  // it is shorter than asked for

  double bytes_per_s() const {
    return seconds > 0 ? static_cast<double>(read_bytes + written_bytes) / seconds : 0;
  }
};

class StorageWorker;

// Adds a measurement to its result: all but name, params and series.
void add_sample(const StorageSample& sample, uint64_t written_bytes, bench::Result& result);

class StorageRig {
 public:
  // Checks the paths (a folder each, no raw device, no tmpfs without `force`, room for the file and
  // 10 % more), makes the files and writes them in full with incompressible data, which counts
  // against the write budget.
  static zoffload::Result<std::unique_ptr<StorageRig>> open(const StorageSetup& setup,
                                                            Context& context);
  ~StorageRig();

  // What open() checks before it touches anything.
  static Status check(const StorageSetup& setup);

  // The error of files that --max-write has no room for.
  static Status over_budget(uint64_t planned_bytes);

  // What an `open` with this setup would write, for --dry-run and the line that announces it.
  static uint64_t planned_write_bytes(const StorageSetup& setup);

  // Loads all paths at once. After a stop nothing is measured any more: `stopped` says so. An error
  // is the first one of any worker, and names the path.
  zoffload::Result<StorageSample> run(const StorageLoad& load, Context& context);

  const char* engine_name() const;              // "io_uring", "libaio", "threads"
  bool direct() const;                          // on every path
  const std::string& why_buffered() const;      // empty if direct or not wanted
  const std::string& why_unregistered() const;  // empty if fixed buffers are in use or not wanted

 private:
  explicit StorageRig(const StorageSetup& setup);
  Status open_workers(Context& context);
  template <typename Task>
  Status on_workers(const Task& task, const std::function<Team::Time()>& tick);
  uint64_t moved_bytes() const;

  const StorageSetup setup_;
  std::atomic<bool> halt_{false};                        // a worker failed
  std::vector<std::unique_ptr<StorageWorker>> workers_;  // each path's, one path after the other
  Team team_;                                            // a thread for each worker
};

}  // namespace zoffload::bench
