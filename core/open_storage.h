// The storage side of the composition root: this job's folders on the nvme_paths, a queue for
// each, what is known of each path (from the profile, or measured here), and the tier that stands
// on them.
//
// REQUIRES: one thread, the control thread, from open() to destruction.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aio/file_queue.h"
#include "core/open.h"
#include "core/plan/bound.h"
#include "tiers/nvme_tier.h"
#include "tiers/store_folder.h"

namespace zoffload {

class LocalStorage {
 public:
  // Before any memory is taken: are the paths there, is there room for `capacity_bytes` in extents
  // of at most `extent_bytes_max`, what does the profile say? `request` outlives make_tier().
  static Result<std::unique_ptr<LocalStorage>> open(const OpenRequest& request,
                                                    uint64_t capacity_bytes,
                                                    uint64_t extent_bytes_max);

  // Opens the queues, measures the paths that nobody knows if the tier is large enough to be worth
  // it, and writes the files. `scratch` is part of `arena`, and free again on return. After
  // kTimeout neither may be freed: a drive may still own them.
  Status make_tier(HostSpan arena, HostSpan scratch, Clock& clock, Workers& workers);

  NvmeTier* tier() { return tier_.get(); }  // null before make_tier()
  ResourceRates rates() const;              // from the profile and from what make_tier() measured

 private:
  // What is known of one path. Zeros: nothing.
  struct Known {
    std::string folder;  // as the user wrote it
    bool direct = false;
    dev_t file_system = 0;
    uint64_t free_bytes = 0;
    std::string io_engine;
    uint64_t block_bytes = 0;
    uint32_t depth = 0;
    double read_bytes_per_s = 0;
    double write_bytes_per_s = 0;
    double mixed_bytes_per_s = 0;
  };

  LocalStorage(const OpenRequest& request, uint64_t capacity_bytes, uint64_t extent_bytes_max);
  Status read_profile();
  Status check_path(const std::string& folder);
  Status open_queue_of(Known& path, HostSpan arena);
  Status measure_unknown(HostSpan scratch, Clock& clock);
  Status plan_files();
  std::vector<uint64_t> needed_bytes() const;
  bool fits() const;
  void limit_files();

  const OpenRequest& request_;
  const uint64_t capacity_bytes_;
  NvmeOptions options_;
  std::vector<Known> known_;
  ResourceRates of_profile_;  // without paths
  std::vector<std::unique_ptr<StoreFolder>> folders_;
  std::vector<NvmePath> paths_;
  std::vector<std::unique_ptr<FileQueue>> queues_;
  std::string said_;  // a warning of one queue mostly holds for all
  bool unregistered_said_ = false;
  std::unique_ptr<NvmeTier> tier_;
};

}  // namespace zoffload
