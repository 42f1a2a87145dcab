// One read or write of a user's memory from or to a file. The threads that move its parts report to
// it; any thread may wait for it. The caller keeps the memory alive until it is done.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "aio/file.h"
#include "bindings/growth_table.h"
#include "bindings/target_file.h"
#include "core/base/span.h"
#include "core/base/status.h"

namespace zoffload {

class FileOperation {
 public:
  enum class Kind : uint8_t { kRead, kWrite };

  // A write is in flight in `growths`, which outlives it, from GrowthTable::begin() on.
  FileOperation(Kind kind, TargetFile file, uint64_t offset, uint64_t bytes, GrowthTable& growths);
  FileOperation(const FileOperation&) = delete;
  FileOperation& operator=(const FileOperation&) = delete;

  Kind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }

  bool done() const { return done_; }
  bool wait(uint64_t ns_max);  // true: done
  Status status() const;       // REQUIRES: done()

  // In a forked child nobody will ever finish what was in flight: wait() returns at once, and this
  // is true.
  bool orphaned() const;

  // For those who move the parts: how many there are, before the first is finished; then each of
  // them once, from any thread. The file is closed with the last.
  void expect_parts(uint32_t count);
  void finish_part(Status status);
  const TargetFile& file() const { return *file_; }  // REQUIRES: not done

 private:
  void finish();
  Status in_context(const Status& status) const;

  const Kind kind_;
  const std::string path_;
  const uint64_t offset_;
  const uint64_t bytes_;
  const pid_t owner_;
  GrowthTable& growths_;
  std::optional<TargetFile> file_;  // until done

  std::atomic<bool> done_ = false;
  std::mutex mutex_;  // guards what follows, and makes done_ change under it
  std::condition_variable finished_;
  uint32_t part_count_ = 0;  // not finished
  Status status_;            // the first error
};

}  // namespace zoffload
