#include "bindings/file_io.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <mutex>
#include <utility>

#include "core/base/types.h"

namespace zoffload {
namespace {

// More in flight gives no more bandwidth, and every page of it is present from the start.
constexpr uint64_t kStagingBytesMax = uint64_t{64} << 20;
constexpr uint64_t kStagingBlocksMin = 2;  // of each thread: one is copied while one is moved

constexpr uint64_t kBlockBytesMax = uint64_t{1} << 30;
constexpr uint32_t kDepthMax = 4096;
constexpr uint32_t kThreadsMax = 64;

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

Status check(const FileIoOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes % kPageBytes != 0 ||
      options.block_bytes > kBlockBytesMax) {
    return invalid("block_size is " + std::to_string(options.block_bytes) +
                   "; it must be a multiple of 4096, at most 1 GiB");
  }
  if (options.queue_depth == 0 || options.queue_depth > kDepthMax) {
    return invalid("queue_depth is " + std::to_string(options.queue_depth) +
                   "; it must be from 1 to " + std::to_string(kDepthMax));
  }
  if (options.threads == 0 || options.threads > kThreadsMax) {
    return invalid("intra_op_parallelism is " + std::to_string(options.threads) +
                   "; it must be from 1 to " + std::to_string(kThreadsMax));
  }
  return Status();
}

// By thread.
uint64_t staging_block_count(const FileIoOptions& options) {
  const uint64_t affordable = kStagingBytesMax / options.threads / options.block_bytes;
  return std::min<uint64_t>(options.queue_depth, std::max(affordable, kStagingBlocksMin));
}

Status past_the_end(const std::string& path, uint64_t offset, uint64_t bytes, uint64_t has) {
  return invalid(path + ": reading " + std::to_string(bytes) + " bytes at offset " +
                 std::to_string(offset) + " goes past the end of the file, which has " +
                 std::to_string(has) + " bytes");
}

}  // namespace

Result<std::unique_ptr<FileIo>> FileIo::open(const FileIoOptions& options) {
  ZO_TRY(check(options));
  std::unique_ptr<FileIo> io(new FileIo(options));
  ZO_TRY(io->start_workers());
  return io;
}

FileIo::FileIo(const FileIoOptions& options) : options_(options), owner_(getpid()) {}

FileIo::~FileIo() {
  close();
  // A child has none of these threads to join: there they are left alone for ever.
  for (auto& worker : workers_) static_cast<void>(worker.release());
}

Status FileIo::start_workers() {
  const uint64_t share_bytes = staging_block_count(options_) * options_.block_bytes;
  staging_bytes_ = share_bytes * options_.threads;
  ZO_ASSIGN_OR_RETURN(const HostSpan staging, memory_.allocate_pinned(staging_bytes_));
  IoWorker::Options worker;
  worker.engine = options_.engine;
  worker.queue.depth = options_.queue_depth;
  worker.queue.want_direct = options_.direct != DirectIoUse::kOff;
  worker.queue.direct_expected = worker.queue.want_direct;  // only direct files use the queue
  worker.block_bytes = options_.block_bytes;
  for (uint32_t i = 0; i < options_.threads; ++i) {
    worker.staging = staging.subspan(i * share_bytes, share_bytes);
    ZO_ASSIGN_OR_RETURN(auto started, IoWorker::start(worker));
    workers_.push_back(std::move(started));
  }
  engine_name_ = workers_.front()->engine_name();
  why_ = workers_.front()->why();
  unregistered_ = workers_.front()->unregistered();
  return Status();
}

bool FileIo::in_fork() const { return getpid() != owner_; }

void FileIo::close() {
  if (in_fork()) return;
  const std::unique_lock alone(gate_);
  closed_ = true;
  workers_.clear();
}

Result<std::string> FileIo::register_memory(HostSpan memory) {
  if (in_fork()) return std::string();
  const std::shared_lock open(gate_);
  for (auto& worker : workers_) {
    auto unregistered = worker->register_memory(memory);
    if (unregistered.ok() && unregistered->empty()) continue;
    for (auto& other : workers_) other->unregister_memory(memory);
    return unregistered;
  }
  return std::string();
}

void FileIo::unregister_memory(HostSpan memory) {
  if (in_fork()) return;
  const std::shared_lock open(gate_);
  for (auto& worker : workers_) worker->unregister_memory(memory);
}

FileIo::Started FileIo::read(const std::string& path, uint64_t offset, HostSpan to) {
  return start(FileOperation::Kind::kRead, path, offset, to);
}

FileIo::Started FileIo::write(const std::string& path, HostSpan from, uint64_t offset) {
  return start(FileOperation::Kind::kWrite, path, offset, from);
}

FileIo::Started FileIo::start(FileOperation::Kind kind, const std::string& path, uint64_t offset,
                              HostSpan memory) {
  if (in_fork()) {
    return Status(Code::kUnsupported,
                  "the handle belongs to the process that made it; this is a fork of it");
  }
  const std::shared_lock open(gate_);
  if (closed_) return invalid("the handle is closed");
  const uint64_t bytes = memory.size();
  constexpr uint64_t kOffsetMax = std::numeric_limits<off_t>::max();
  if (offset > kOffsetMax || bytes > kOffsetMax - offset) {
    return invalid(path + ": offset " + std::to_string(offset) + " is past what a file can have");
  }
  const bool writes = kind == FileOperation::Kind::kWrite;
  ZO_ASSIGN_OR_RETURN(TargetFile file,
                      TargetFile::open(path, writes ? Access::kReadWrite : Access::kRead));
  if (writes && bytes > 0) {
    ZO_TRY(growths_.begin(file, offset, offset + bytes));
  } else if (!writes) {
    ZO_ASSIGN_OR_RETURN(const uint64_t has, file.bytes());
    if (offset + bytes > has) return past_the_end(path, offset, bytes, has);
  }
  auto operation = std::make_shared<FileOperation>(kind, std::move(file), offset, bytes, growths_);
  auto parts = cut(*operation, memory);
  if (!parts.ok()) {
    operation->expect_parts(1);
    operation->finish_part(parts.status());
    return parts.status();
  }
  operation->expect_parts(static_cast<uint32_t>(parts->size()));
  uint32_t worker = next_worker_.fetch_add(1);
  for (FilePart& part : *parts) {
    part.operation = operation;
    workers_[worker++ % workers_.size()]->post(std::move(part));
  }
  return operation;
}

// About equal parts, cut at page boundaries of the file; no more of them than blocks.
Result<std::vector<FilePart>> FileIo::cut(const FileOperation& operation, HostSpan memory) const {
  std::vector<FilePart> parts;
  const uint64_t count =
      std::min<uint64_t>(options_.threads, ceil_div(memory.size(), options_.block_bytes));
  const uint64_t begin = operation.offset();
  const uint64_t end = begin + memory.size();
  uint64_t at = begin;
  for (uint64_t i = 1; i <= count; ++i) {
    const uint64_t boundary = round_up(begin + memory.size() / count * i, kPageBytes);
    const uint64_t next = i == count ? end : std::min(end, boundary);
    if (next == at) continue;
    ZO_ASSIGN_OR_RETURN(auto direct, open_direct(operation, at, next));
    if (direct.has_value()) operation.file().expect_edges_only();
    parts.push_back({nullptr, std::move(direct), at, memory.subspan(at - begin, next - at)});
    at = next;
  }
  return parts;
}

// Once more, past the page cache; empty where that is not wanted, not possible or not worth while.
Result<std::optional<File>> FileIo::open_direct(const FileOperation& operation, uint64_t begin,
                                                uint64_t end) const {
  const bool has_pages = round_up(begin, kPageBytes) < end / kPageBytes * kPageBytes;
  if (options_.direct == DirectIoUse::kOff) return std::optional<File>();
  if (options_.direct == DirectIoUse::kAuto && !has_pages) return std::optional<File>();
  const bool writes = operation.kind() == FileOperation::Kind::kWrite;
  ZO_ASSIGN_OR_RETURN(
      File file, File::open(operation.path(), writes ? Access::kReadWrite : Access::kRead, true));
  struct stat facts = {};
  if (fstat(file.fd(), &facts) != 0) return Status::from_errno(errno, operation.path());
  if (TargetFile::Key(facts.st_dev, facts.st_ino) != operation.file().key()) {
    return Status(Code::kIoError, operation.path() + ": replaced by another file meanwhile");
  }
  if (file.direct()) return std::optional<File>(std::move(file));
  if (options_.direct == DirectIoUse::kAuto) return std::optional<File>();
  return Status(Code::kUnsupported, operation.path() + ": direct is \"on\", but " +
                                        file.why_buffered() + "; set direct to \"auto\"");
}

}  // namespace zoffload
