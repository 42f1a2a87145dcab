// The files that writes in flight have made longer. A write past the end of a file reserves its
// space first, which makes the file longer at once; if it fails, the file goes back to what the
// other writes, those that succeeded and those still in flight, have asked for, unless others
// have written past that.
//
// Used from any thread. It knows the writes of one handle; what others append, or write into the
// new part, is left alone and keeps the file at its new size.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "bindings/target_file.h"
#include "core/base/status.h"

namespace zoffload {

class GrowthTable {
 public:
  // Makes the file long enough for a write of [offset, end), which is then in flight until ended().
  // On an error the file is as it was. REQUIRES: offset < end.
  Status begin(const TargetFile& file, uint64_t offset, uint64_t end);
  void ended(const TargetFile& file, uint64_t offset, uint64_t end, bool succeeded);

 private:
  struct Growth {
    uint64_t wanted_bytes = 0;    // what the file had at first, or more after writes that succeeded
    uint64_t reserved_bytes = 0;  // its size, unless somebody else has changed it
    std::multiset<uint64_t> ends;  // of the writes in flight

    std::multimap<uint64_t, uint64_t> failed;  // [offset, end) of writes that failed meanwhile

    uint64_t bytes_to_keep() const;
    bool holds_others_bytes(int fd, uint64_t begin) const;
    void undo(const TargetFile& file);
  };

  std::mutex mutex_;
  std::map<TargetFile::Key, Growth> files_;  // those with writes in flight
};

}  // namespace zoffload
