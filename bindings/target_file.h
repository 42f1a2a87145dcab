// A user's file for the time of one operation: open with the page cache, known to be a regular file
// and which one. It serves the bytes that direct I/O cannot move, in any number and at any offset.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "aio/file.h"
#include "core/base/span.h"
#include "core/base/status.h"

namespace zoffload {

class TargetFile {
 public:
  using Key = std::pair<dev_t, ino_t>;  // which file it is, whatever its name

  // kReadWrite creates the file where it is missing, for good: removing it after a failure could
  // take it from others who have opened it. Errors name the path and say what to do.
  static Result<TargetFile> open(const std::string& path, Access access);

  TargetFile(TargetFile&& other) noexcept;
  TargetFile& operator=(TargetFile&&) = delete;
  ~TargetFile();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  Key key() const { return key_; }
  Result<uint64_t> bytes() const;  // at this moment

  // What will be read are a few bytes here and there: reading ahead would only fill the page cache.
  void expect_edges_only() const;

  // Moves all bytes or says why not; a file that ends too early is an error too.
  Status read(uint64_t offset, HostSpan to) const;
  Status write(HostSpan from, uint64_t offset) const;

 private:
  TargetFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status identify();

  int fd_;
  std::string path_;
  Key key_ = {};
};

}  // namespace zoffload
