// The files of a queue: new, of a fixed size, with their space reserved, direct where possible.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/ports/io_queue.h"

namespace zoffload {

struct DirectIo {
  bool supported = false;
  uint32_t alignment = 0;  // of offsets, sizes and addresses, in bytes; 0 when not supported
  std::string why_not;     // empty when supported
};

// Whether direct I/O really works on this file's file system: statx() is asked, and where it has no
// answer a write is tried. REQUIRES: a new, empty file open for writing; it is left as it was.
DirectIo probe_direct_io(int fd);

// Owns one descriptor.
class File {
 public:
  // Creates `path` with `bytes` bytes reserved. On an error nothing is left behind, and a file that
  // was there before is as it was. Where direct I/O is wanted and missing, why_buffered() says why.
  static Result<File> create(const std::string& path, uint64_t bytes, bool want_direct);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  const std::string& why_buffered() const { return why_buffered_; }  // empty: direct, or not wanted

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status prepare(uint64_t bytes, bool want_direct);
  Status reserve(uint64_t bytes);

  int fd_;
  std::string path_;
  std::string why_buffered_;
};

// The files that a queue has open, by FileId. They are closed, not removed, with the table.
class FileTable {
 public:
  explicit FileTable(bool want_direct) : want_direct_(want_direct) {}

  Result<FileId> open(const std::string& path, uint64_t bytes);

  // An id that was never given out has descriptor -1, so that the kernel answers EBADF.
  int fd(FileId file) const { return file < files_.size() ? files_[file].fd() : -1; }
  std::string path(FileId file) const;

 private:
  const bool want_direct_;
  bool warned_ = false;  // buffered I/O is said once for a queue, not for each file
  std::vector<File> files_;
};

}  // namespace zoffload
