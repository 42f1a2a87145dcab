// Reads and writes of any memory from and to any regular file, asynchronously, at any offset and of
// any size: what zoffload.aio.Handle is made of. Direct I/O where the file system has it; the page
// cache for what is no whole page, and where it has none.
//
// Used from any thread. In a forked child every verb is an error, and nothing of the parent's is
// touched.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "bindings/file_operation.h"
#include "bindings/io_worker.h"
#include "core/base/span.h"
#include "core/base/status.h"
#include "cuda/host_device.h"

namespace zoffload {

enum class DirectIoUse : uint8_t { kAuto, kOn, kOff };  // kOn: a file without it is an error

struct FileIoOptions {
  uint64_t block_bytes = 1 << 20;  // of one request to a drive; a multiple of kPageBytes
  uint32_t queue_depth = 32;       // requests in flight of each thread
  uint32_t threads = 1;            // that share the work of an operation
  IoEngine engine = IoEngine::kAuto;
  DirectIoUse direct = DirectIoUse::kAuto;
};

class FileIo {
 public:
  // Allocates the staging memory and starts the threads. Errors name the option.
  static Result<std::unique_ptr<FileIo>> open(const FileIoOptions& options);
  ~FileIo();  // as close()
  FileIo(const FileIo&) = delete;
  FileIo& operator=(const FileIo&) = delete;

  // Opens the file and starts the operation. The file must have all bytes that are read; it grows
  // for those that are written, at once, and goes back to its size if the write fails (0 where it
  // was missing). The memory stays alive, and unchanged for a write, until the operation is done.
  using Started = Result<std::shared_ptr<FileOperation>>;
  Started read(const std::string& path, uint64_t offset, HostSpan to);
  Started write(const std::string& path, HostSpan from, uint64_t offset);

  // Registers memory that many operations will use, with all threads or none, which makes them
  // cheaper; they work without. Returns why it stays unregistered, or "". It may be unmapped after
  // unregister_memory(), when no operation on it is in flight, or after close(). In a forked child
  // neither does anything.
  Result<std::string> register_memory(HostSpan memory);
  void unregister_memory(HostSpan memory);

  void close();  // waits for everything in flight; may be repeated

  const std::string& engine_name() const { return engine_name_; }  // "io_uring", "threads" ...
  const std::string& why() const { return why_; }                  // this engine
  const std::string& unregistered() const { return unregistered_; }
  uint64_t staging_bytes() const { return staging_bytes_; }
  uint32_t descriptors_per_operation() const { return 1 + options_.threads; }

 private:
  explicit FileIo(const FileIoOptions& options);
  Status start_workers();
  Started start(FileOperation::Kind kind, const std::string& path, uint64_t offset,
                HostSpan memory);
  Result<std::vector<FilePart>> cut(const FileOperation& operation, HostSpan memory) const;
  Result<std::optional<File>> open_direct(const FileOperation& operation, uint64_t begin,
                                          uint64_t end) const;
  bool in_fork() const;

  const FileIoOptions options_;
  const pid_t owner_;
  GrowthTable growths_;
  HostDevice memory_;  // the staging blocks
  uint64_t staging_bytes_ = 0;
  std::string engine_name_, why_, unregistered_;

  std::shared_mutex gate_;  // held shared while an operation is started, alone while closing
  bool closed_ = false;
  std::vector<std::unique_ptr<IoWorker>> workers_;
  std::atomic<uint32_t> next_worker_ = 0;
};

}  // namespace zoffload
