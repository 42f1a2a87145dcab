// Extents in files on one or several NVMe drives. Each extent lies whole on one path, and a path
// owns a share of the bytes in proportion to its weight (measured bandwidth), so that the drives
// finish together. Files are written full of zeros at open(): unwritten file system extents are
// several times slower. Every extent carries a sum (XXH3) in memory, taken at store and compared at
// load: silent corruption is an error.
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
#include "tiers/nvme_file.h"

namespace zoffload {

struct NvmePath {
  IoQueue* queue =
      nullptr;        // outlives the tier; the only one that polls it, unless paths share a queue
  std::string file;   // created by open(), removed by the owner of its folder
  double weight = 1;  // relative bandwidth, above 0
  std::string name;   // for errors: the nvme_path as the user wrote it
};

struct NvmeOptions {
  uint64_t block_bytes = uint64_t{1} << 20;        // of one request; a multiple of kPageBytes
  uint64_t extent_bytes_max = uint64_t{64} << 20;  // the largest extent, if there are several paths
  bool verify = true;                              // take and compare sums
};

class NvmeTier : public Tier {
 public:
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Creates the files and writes them once, which takes as long as the drives need; `progress` (may
  // be empty) hears of it. `zeros` is page-aligned scratch of at least one block within the
  // registered arena, free again on return.
  static Result<std::unique_ptr<NvmeTier>> open(std::vector<NvmePath> paths,
                                                uint64_t capacity_bytes, HostSpan zeros,
                                                Clock& clock, const NvmeOptions& options,
                                                const Progress& progress = {});

  // The size of each path's file: its share of the capacity and, as whole extents cannot be shared
  // out exactly, room for one extent more.
  static std::vector<uint64_t> file_bytes(const std::vector<NvmePath>& paths,
                                          uint64_t capacity_bytes, const NvmeOptions& options);

  ~NvmeTier() override;  // REQUIRES: nothing in flight

  uint32_t poll() override;
  void cancel() override;  // blocks that no drive has yet are failed at once

  // For reports and tests: the path, by its place in open()'s list, on which an extent lies.
  uint32_t path_index(Extent extent) const { return homes_[home_index(extent)].path; }

 private:
  struct Path {
    Path(const NvmePath& path, double share, FileId file, const NvmeOptions& options)
        : name(path.name), share(share), file(*path.queue, file, options.block_bytes) {}
    std::string name;
    double share;  // of all bytes; they add up to 1
    NvmeFile file;
    uint64_t file_bytes = 0;
    uint64_t used_bytes = 0;
  };

  // Where one extent lies, and what it must read back as.
  struct Home {
    Extent extent;
    uint32_t path = 0;
    uint64_t offset = 0;  // in the path's file
    bool stored = false;  // if not, it reads as zeros
    bool busy = false;    // an operation is in flight
    uint64_t sum = 0;
  };

  struct Operation {
    size_t home;  // index into homes_
    HostSpan memory;
    bool is_load;
    Completion* completion;  // the caller's
    Completion moved;        // the file's
  };

  NvmeTier(uint64_t capacity_bytes, const NvmeOptions& options);

  void place(Extent extent) override;
  void do_load(Extent from, HostSpan to, Completion& completion) override;
  void do_store(HostSpan from, Extent to, Completion& completion) override;

  size_t home_index(Extent extent) const;
  Operation& start(Extent extent, HostSpan memory, bool is_load, Completion& completion);
  void finish(Operation& operation);
  Status verify(const Home& home, HostSpan memory) const;
  Status write_zeros(HostSpan zeros, Clock& clock, const Progress& progress);

  const NvmeOptions options_;
  std::vector<std::unique_ptr<Path>> paths_;
  std::vector<Home> homes_;  // in order of extent.offset
  std::list<Operation> operations_;
};

}  // namespace zoffload
