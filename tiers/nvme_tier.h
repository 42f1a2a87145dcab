// Extents in files on one or several NVMe drives. Each extent lies whole on one path, and a path
// owns a share of the bytes in proportion to its weight (measured bandwidth), so that the drives
// finish together; where the run shows other speeds, extents move with their next store. Files are
// written full of incompressible bytes at open(): unwritten file system extents are several times
// slower, and a drive that compresses must not look faster than it is. Every extent carries a sum
// (XXH3) in memory, taken at store and compared at load: silent corruption is an error. Sums are
// the work of CPU workers, beside the drive's.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "core/ports/clock.h"
#include "core/ports/io_queue.h"
#include "core/ports/tier.h"
#include "core/ports/workers.h"
#include "tiers/depth_tuner.h"
#include "tiers/path_shares.h"
#include "tiers/speed_meter.h"
#include "tiers/transfer_queue.h"

namespace zoffload {

struct NvmePath {
  IoQueue* queue =
      nullptr;         // outlives the tier; the only one that polls it, unless paths share a queue
  std::string file;    // created by open(), removed by the owner of its folder
  double weight = 1;   // relative bandwidth with reads and writes mixed, in any unit, above 0
  std::string name;    // for errors: the nvme_path as the user wrote it
  uint32_t depth = 0;  // requests in flight, at most the queue's; 0: the queue's
  bool fixed_depth = false;  // else it is checked and changed while it is in use
  uint64_t block_bytes = 0;  // of one request, a multiple of kPageBytes; 0: the options'
  uint64_t file_bytes_max = UINT64_MAX;  // what fits there; the other paths take the rest
};

struct NvmeOptions {
  uint64_t block_bytes = uint64_t{1} << 20;        // of one request; a multiple of kPageBytes
  uint64_t extent_bytes_max = uint64_t{64} << 20;  // the largest extent, if there are several paths
  bool verify = true;                              // take and compare sums
  double headroom_share = 0.25;  // of each path's share, for extents that move there; not if alone
  uint64_t window_bytes = uint64_t{256} << 20;  // over which speeds are measured
  uint64_t stall_timeout_ns = 0;  // open() gives up when nothing has moved for this long; 0: never
  std::function<void(const std::string&)> warn = {};  // hears what the user should know
};

class NvmeTier : public Tier {
 public:
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Creates the files and writes them once, which takes as long as the drives need; `progress` (may
  // be empty) hears of it. `scratch` is page-aligned memory of at least one block within the
  // registered arena, free again on return. `clock` outlives the tier, and `workers` too, which
  // somebody polls; without them sums are taken in the calls. After kTimeout a drive may still own
  // what it was given: what the tier stood on, the scratch included, must not be freed.
  static Result<std::unique_ptr<NvmeTier>> open(std::vector<NvmePath> paths,
                                                uint64_t capacity_bytes, HostSpan scratch,
                                                Clock& clock, const NvmeOptions& options,
                                                const Progress& progress = {},
                                                Workers* workers = nullptr);

  // The size of each path's file: its share of the capacity, headroom and, as whole extents cannot
  // be shared out exactly, room for one extent more. What is above file_bytes_max goes to the other
  // paths' files, unless all together are too small.
  static std::vector<uint64_t> file_bytes(const std::vector<NvmePath>& paths,
                                          uint64_t capacity_bytes, const NvmeOptions& options);

  ~NvmeTier() override;  // REQUIRES: nothing in flight

  uint32_t poll() override;
  void cancel() override;  // blocks that no drive has yet are failed at once

  std::vector<TierPath> paths() const override;
  uint32_t path_of(Extent extent) const override { return homes_[home_index(extent)].busy_path; }

  // For reports and tests, by place in open()'s list.
  struct PathReport {
    std::string name;
    double share = 0;          // of the bytes, now
    uint64_t used_bytes = 0;   // of the extents that lie there
    uint32_t depth = 0;        // now
    double bytes_per_s = 0;    // while it was busy; 0: not measured yet
    uint64_t moved_bytes = 0;  // since the start, the first write included
  };
  PathReport report(uint32_t path) const;
  uint32_t path_index(Extent extent) const { return homes_[home_index(extent)].place.path; }

 private:
  struct Path {
    Path(const NvmePath& path, FileId file, uint64_t file_bytes, const NvmeOptions& options);
    const std::string name;
    const FileId file;
    const uint64_t file_bytes;
    TransferQueue queue;
    const bool fixed_depth;
    DepthTuner tuner;
    SpeedMeter saturated;      // for the tuner
    SpeedMeter busy;           // for the shares
    bool warned = false;       // that it is slower than expected
    Completion filled;         // the first write
    uint64_t moved_at_ns = 0;  // ... and its last sign of life
  };

  // Where one extent lies, and what it must read back as.
  struct Home {
    enum class State : uint8_t {
      kZeros,   // never stored: it reads as zeros, without the drive
      kStored,  // `sum` is its sum
      kLost,    // its last store failed: neither the old bytes nor the new ones
    };
    Extent extent;
    PathShares::Place place;
    State state = State::kZeros;
    bool busy = false;       // an operation is in flight
    uint32_t busy_path = 0;  // ... on this path
    uint64_t sum = 0;
  };

  // The CPU's part of an operation.
  class BytesJob : public Job {
   public:
    enum class Kind : uint8_t { kSum, kZeros };
    void run() override;
    Kind kind = Kind::kSum;
    HostSpan bytes;
    uint64_t sum = 0;
  };

  struct Operation {
    size_t home;  // index into homes_
    HostSpan memory;
    bool is_load;
    PathShares::Place place;  // of the transfer: a store may go elsewhere than the home is
    Completion* completion;   // the caller's
    Completion moved;         // the queue's; idle: the drive has no part in it
    Completion worked;        // the job's; idle: there is none, or not yet
    BytesJob job;
  };

  NvmeTier(uint64_t capacity_bytes, Clock& clock, Workers* workers, const NvmeOptions& options);

  void place(Extent extent) override;
  void do_load(Extent from, HostSpan to, Urgency urgency, Completion& completion) override;
  void do_store(HostSpan from, Extent to, Completion& completion) override;

  Status open_files(const std::vector<NvmePath>& paths, const std::vector<uint64_t>& file_bytes);
  Status write_files(HostSpan scratch, const Progress& progress);
  Status advance_fill(Path& path);
  size_t home_index(Extent extent) const;
  Operation& start(Extent extent, HostSpan memory, bool is_load, Completion& completion);
  void run_job(Operation& operation, BytesJob::Kind kind, HostSpan bytes);
  bool advance(Operation& operation);
  Status finish_load(Operation& operation);
  Status finish_store(Operation& operation);
  static Status corruption(const Home& home, const char* what);
  void observe(uint32_t path, uint64_t now_ns);
  void tell_of_slow_paths();

  const NvmeOptions options_;
  Clock& clock_;
  Workers* const workers_;  // may be null
  std::vector<std::unique_ptr<Path>> paths_;
  std::unique_ptr<PathShares> shares_;
  std::vector<Home> homes_;  // in order of extent.offset
  std::list<Operation> operations_;
};

}  // namespace zoffload
