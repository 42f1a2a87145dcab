#include "aio/file.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/format.h"
#include "core/base/types.h"

namespace zoffload {
namespace {

// The head of the kernel's struct statx up to the two alignments. Headers before Linux 6.1 lack
// them, and a build there must still ask a newer kernel.
struct StatxDirect {
  uint32_t mask;
  std::array<uint8_t, 0x94> skipped;
  uint32_t memory_align;
  uint32_t offset_align;
  std::array<uint8_t, 256 - 0xa0> rest;
};
static_assert(sizeof(StatxDirect) == 256);
static_assert(offsetof(StatxDirect, memory_align) == 0x98);

constexpr uint32_t kStatxDioAlign = 0x2000;
constexpr long kTmpfsMagic = 0x01021994;
constexpr long kRamfsMagic = 0x858458f6;

DirectIo no_direct_io(std::string why) { return {false, 0, std::move(why)}; }

// The smallest size that a direct write accepts, or 0. The page it writes is cut off again.
uint32_t try_direct_write(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) return 0;
  alignas(kPageBytes) const std::array<std::byte, kPageBytes> zeros = {};
  uint32_t accepted = 0;
  for (uint32_t bytes : {512u, 4096u}) {
    if (pwrite(fd, zeros.data(), bytes, 0) == static_cast<ssize_t>(bytes)) {
      accepted = bytes;
      break;
    }
  }
  const bool restored = ftruncate(fd, 0) == 0 && fcntl(fd, F_SETFL, flags) == 0;
  return restored ? accepted : 0;
}

// What may be wrong with the path, in words that say what to do.
Status creation_error(int error_number, const std::string& path) {
  const Status status = Status::from_errno(error_number, path);
  const char* remedy = nullptr;
  switch (error_number) {
    case EEXIST:
      remedy = "; an existing file is never overwritten: remove it or change the path";
      break;
    case ENOENT: remedy = "; create its folder first"; break;
    case EACCES:
    case EROFS: remedy = "; its folder must be writable"; break;
    default: return status;
  }
  return Status(status.code(), status.message() + remedy, error_number);
}

Status no_space(int error_number, const std::string& path, uint64_t bytes, uint64_t free_bytes) {
  return Status(Code::kOutOfSpace,
                path + ": needs " + format_bytes(bytes) + " (" + std::to_string(bytes) +
                    " bytes), free are " + format_bytes(free_bytes) + " (" +
                    std::to_string(free_bytes) + " bytes); free some space or use another path",
                error_number);
}

}  // namespace

DirectIo probe_direct_io(int fd) {
  struct statfs file_system = {};
  if (fstatfs(fd, &file_system) != 0) return no_direct_io("statfs failed");
  // tmpfs takes O_DIRECT without a word since Linux 6.6, and there is no device to be direct to.
  const long type = static_cast<long>(file_system.f_type);
  if (type == kTmpfsMagic || type == kRamfsMagic) return no_direct_io("the file system is memory");

  StatxDirect facts = {};
  const long asked = syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxDioAlign, &facts);
  if (asked == 0 && (facts.mask & kStatxDioAlign) != 0) {
    if (facts.offset_align == 0)
      return no_direct_io("the file system has no direct I/O for this file");
    const uint32_t alignment = std::max(facts.offset_align, facts.memory_align);
    if (alignment <= kPageBytes) return {true, alignment, ""};
    return no_direct_io("direct I/O needs an alignment of " + std::to_string(alignment) + " bytes");
  }
  const uint32_t accepted = try_direct_write(fd);
  if (accepted == 0) return no_direct_io("the file system refuses O_DIRECT");
  return {true, accepted, ""};
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      why_buffered_(std::move(other.why_buffered_)) {}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<File> File::create(const std::string& path, uint64_t bytes, bool want_direct) {
  // Without O_DIRECT at first: where it is refused, open() would fail and still leave the new file.
  const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return creation_error(errno, path);
  File file(fd, path);
  const Status prepared = file.prepare(bytes, want_direct);
  if (prepared.ok()) return file;
  ::unlink(path.c_str());
  return prepared;
}

Status File::prepare(uint64_t bytes, bool want_direct) {
  DirectIo direct;
  if (want_direct) direct = probe_direct_io(fd_);
  ZO_TRY(reserve(bytes));
  // Only now: where fallocate() is missing glibc writes single bytes, which O_DIRECT refuses.
  const int flags = fcntl(fd_, F_GETFL);
  if (direct.supported && fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) {
    direct.why_not = "the file system refuses O_DIRECT";
  }
  why_buffered_ = direct.why_not;
  return Status();
}

Status File::reserve(uint64_t bytes) {
  if (bytes == 0) return Status();
  struct statvfs space = {};
  if (fstatvfs(fd_, &space) != 0) return Status::from_errno(errno, path_);
  // Asked first: a hopeless fallocate() would fill the disk for everybody before it fails.
  const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  if (bytes / space.f_frsize > space.f_bfree) return no_space(ENOSPC, path_, bytes, free_bytes);
  int error_number;
  do {
    error_number = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  } while (error_number == EINTR);
  switch (error_number) {
    case 0: return Status();
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return no_space(error_number, path_, bytes, free_bytes);
    default: return Status::from_errno(error_number, path_ + ": cannot reserve space");
  }
}

Result<FileId> FileTable::open(const std::string& path, uint64_t bytes) {
  ZO_ASSIGN_OR_RETURN(File file, File::create(path, bytes, want_direct_));
  if (!file.why_buffered().empty() && !warned_) {
    spdlog::warn("{}: buffered, {}: expect less bandwidth and much more CPU time", path,
                 file.why_buffered());
    warned_ = true;
  }
  files_.push_back(std::move(file));
  return static_cast<FileId>(files_.size() - 1);
}

std::string FileTable::path(FileId file) const {
  if (file < files_.size()) return files_[file].path();
  return "file " + std::to_string(file) + " (never opened)";
}

}  // namespace zoffload
