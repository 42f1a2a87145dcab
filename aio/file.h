// The files of a queue, direct where possible: new ones, of a fixed size and with their space
// reserved, with a name or without; and existing ones.
#pragma once

#include <cstdint>
#include <optional>
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

enum class Access : uint8_t {
  kRead,
  kReadWrite,  // created if missing
};

// Owns one descriptor of a regular file. Where direct I/O is wanted and missing, why_buffered()
// says why.
class File {
 public:
  // Creates `path` with `bytes` bytes reserved. On an error nothing is left behind, and a file that
  // was there before is as it was.
  static Result<File> create(const std::string& path, uint64_t bytes, bool want_direct);

  // The same without a name, gone with its last descriptor whatever ends the process. Where the
  // file system has no such files the name is removed at once. path() is for messages only:
  // "/mnt/a/(unnamed)".
  static Result<File> create_unnamed(const std::string& folder, uint64_t bytes, bool want_direct);

  // Opens a file of any size as it is, or, with kReadWrite, an empty one. Anything but a regular
  // file is refused.
  static Result<File> open(const std::string& path, Access access, bool want_direct);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }
  const std::string& why_buffered() const { return why_buffered_; }  // empty: direct, or not wanted

  Result<uint64_t> bytes() const;
  // Makes the file at least `bytes` bytes long, with the space for them. What it holds stays.
  Status reserve(uint64_t bytes);

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status prepare(uint64_t bytes, bool want_direct);
  void make_direct(DirectIo probed);

  int fd_;
  std::string path_;
  bool direct_ = false;
  std::string why_buffered_;
};

// The files that a queue has open, by FileId. They are closed, not removed, with the table.
class FileTable {
 public:
  FileId add(File file);  // the lowest id that is free
  void remove(FileId file);

  bool holds(FileId file) const { return file < files_.size() && files_[file].has_value(); }
  const File& operator[](FileId file) const;  // REQUIRES: holds(file)

  // An id that is not given out has descriptor -1, so that the kernel answers EBADF.
  int fd(FileId file) const { return holds(file) ? files_[file]->fd() : -1; }
  std::string path(FileId file) const;

 private:
  std::vector<std::optional<File>> files_;
};

}  // namespace zoffload
