// One job's own folder below an nvme_path: `<nvme_path>/zoffload-<pid>-<random hex>`, which holds
// the swap files `zo-*.dat` and a file `lock`. The owner holds a flock on `lock` for as long as it
// lives, so any number of jobs share a path, and what a killed job left behind is recognised (its
// lock can be taken) and removed by the next one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace zoffload {

class StoreFolder {
 public:
  // Removes the folders of dead owners, then makes ours. kInvalidArgument (missing, not a folder,
  // read-only, no permission) and kOutOfSpace name the path and what to do.
  static Result<std::unique_ptr<StoreFolder>> create(const std::string& nvme_path);

  // kOutOfSpace, with both numbers, if fewer than `bytes` can be written below `nvme_path`.
  static Status check_free_bytes(const std::string& nvme_path, uint64_t bytes);

  ~StoreFolder();  // Removes the swap files and the folder. In a forked child it does nothing.
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;  // "<folder>/zo-<name>.dat"

 private:
  StoreFolder(std::string path, int lock);

  const std::string path_;
  const int lock_;     // file descriptor; the flock goes when it is closed
  const pid_t owner_;  // the process that made the folder
};

// A folder with the name of a store, as it was found.
struct FoundStore {
  enum class State : uint8_t {
    kLive,      // its owner holds the lock
    kStale,     // its owner is dead
    kNoLock,    // no lock file: a job may just be making it, or it is not ours
    kNoAccess,  // the lock cannot be looked at, mostly because another user owns it
  };

  std::string path;
  State state = State::kNoAccess;
  uint64_t bytes = 0;                      // on the drive, of its swap files
  std::vector<std::string> foreign_files;  // names of what is not ours; the folder stays for them
};

// The stores right below `nvme_path`, by name. kInvalidArgument if that is no folder or unreadable.
Result<std::vector<FoundStore>> find_stores(const std::string& nvme_path);

enum class Removal : uint8_t {
  kGone,
  kFolderKept,  // our files are gone, but something foreign lies in the folder
  kNotStale,    // nothing was touched: by now somebody holds the lock, or there is no such store
};

// Removes a store whose owner is dead. kIoError if what is ours could not be removed.
Result<Removal> remove_stale_store(const std::string& path);

}  // namespace zoffload
