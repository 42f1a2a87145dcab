#include "aio/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
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

// The smallest size that a direct transfer accepts, or 0. An empty file is written to, and what was
// written is cut off again; a file with content is read.
uint32_t try_direct_transfer(int fd, bool empty) {
  const int flags = fcntl(fd, F_GETFL);
  if (fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) return 0;
  alignas(kPageBytes) std::array<std::byte, kPageBytes> page = {};
  uint32_t accepted = 0;
  for (uint32_t bytes : {512u, 4096u}) {
    const ssize_t moved =
        empty ? pwrite(fd, page.data(), bytes, 0) : pread(fd, page.data(), bytes, 0);
    if (empty ? moved == static_cast<ssize_t>(bytes) : moved > 0) {
      accepted = bytes;
      break;
    }
  }
  const bool restored = (!empty || ftruncate(fd, 0) == 0) && fcntl(fd, F_SETFL, flags) == 0;
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

// Before it is opened: opening alone waits at a FIFO and rewinds a tape.
Status check_regular(const struct stat& facts, const std::string& path) {
  if (S_ISREG(facts.st_mode)) return Status();
  const char* what = "a device";
  if (S_ISDIR(facts.st_mode)) what = "a folder";
  if (S_ISFIFO(facts.st_mode)) what = "a pipe";
  if (S_ISSOCK(facts.st_mode)) what = "a socket";
  const int error_number = S_ISDIR(facts.st_mode) ? EISDIR : EINVAL;
  return Status(Code::kInvalidArgument, path + ": it is " + what + "; give a regular file",
                error_number);
}

Status opening_error(int error_number, const std::string& path) {
  const Status status = Status::from_errno(error_number, path);
  const char* remedy = nullptr;
  switch (error_number) {
    case ENOENT: remedy = "; there is no such file or folder"; break;
    case EACCES: remedy = "; change its owner or mode"; break;
    case EROFS: remedy = "; mount the file system read-write"; break;
    default: return status;
  }
  return Status(status.code(), status.message() + remedy, error_number);
}

// A descriptor of a file without a name, or -1 with errno.
int open_unnamed(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  // Kernels and file systems without O_TMPFILE see a folder that is opened for writing.
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
  std::string name = folder + "/.zoffload-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

DirectIo probe_direct_transfer(int fd, bool empty) {
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
  const uint32_t accepted = try_direct_transfer(fd, empty);
  if (accepted == 0) return no_direct_io("the file system refuses O_DIRECT");
  return {true, accepted, ""};
}

}  // namespace

DirectIo probe_direct_io(int fd) { return probe_direct_transfer(fd, true); }

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      direct_(other.direct_),
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

Result<File> File::create_unnamed(const std::string& folder, uint64_t bytes, bool want_direct) {
  const std::string path = folder + "/(unnamed)";
  const int fd = open_unnamed(folder);
  if (fd < 0) return creation_error(errno, path);
  File file(fd, path);
  ZO_TRY(file.prepare(bytes, want_direct));
  return file;
}

Result<File> File::open(const std::string& path, Access access, bool want_direct) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) == 0) {
    ZO_TRY(check_regular(facts, path));
  } else if (errno != ENOENT || access == Access::kRead) {
    return opening_error(errno, path);
  }
  // O_NONBLOCK and the second look are for a path that changes meanwhile.
  const int how = access == Access::kRead ? O_RDONLY : O_RDWR | O_CREAT;
  const int fd = ::open(path.c_str(), how | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
  if (fd < 0) return opening_error(errno, path);
  File file(fd, path);
  if (fstat(fd, &facts) != 0) return opening_error(errno, path);
  ZO_TRY(check_regular(facts, path));
  // A transfer on a non-blocking file ends with EAGAIN for ever.
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) != 0) return opening_error(errno, path);
  if (want_direct) {
    const bool write = facts.st_size == 0 && access == Access::kReadWrite;
    file.make_direct(probe_direct_transfer(fd, write));
  }
  return file;
}

Status File::prepare(uint64_t bytes, bool want_direct) {
  DirectIo direct;
  if (want_direct) direct = probe_direct_io(fd_);
  ZO_TRY(reserve(bytes));
  if (want_direct) make_direct(std::move(direct));
  return Status();
}

void File::make_direct(DirectIo probed) {
  direct_ = probed.supported && fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_DIRECT) == 0;
  if (direct_) return;
  why_buffered_ = probed.supported ? "the file system refuses O_DIRECT" : std::move(probed.why_not);
}

Result<uint64_t> File::bytes() const {
  struct stat facts = {};
  if (fstat(fd_, &facts) != 0) return Status::from_errno(errno, path_);
  return static_cast<uint64_t>(facts.st_size);
}

Status File::reserve(uint64_t bytes) {
  if (bytes == 0) return Status();
  struct stat facts = {};
  struct statvfs space = {};
  if (fstat(fd_, &facts) != 0) return Status::from_errno(errno, path_);
  if (fstatvfs(fd_, &space) != 0) return Status::from_errno(errno, path_);
  const uint64_t held_bytes = static_cast<uint64_t>(facts.st_blocks) * 512;
  // Asked first: a hopeless fallocate() would fill the disk for everybody before it fails.
  const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  const uint64_t missing_bytes = bytes - std::min(bytes, held_bytes);
  if (missing_bytes / space.f_frsize > space.f_bfree) {
    return no_space(ENOSPC, path_, bytes, free_bytes);
  }
  // Where fallocate() is missing glibc writes single bytes, which O_DIRECT refuses.
  const int flags = fcntl(fd_, F_GETFL);
  if (direct_ && fcntl(fd_, F_SETFL, flags & ~O_DIRECT) != 0) {
    return Status::from_errno(errno, path_);
  }
  int error_number;
  do {
    error_number = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  } while (error_number == EINTR);
  if (direct_ && fcntl(fd_, F_SETFL, flags) != 0) return Status::from_errno(errno, path_);
  switch (error_number) {
    case 0: return Status();
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return no_space(error_number, path_, bytes, free_bytes);
    default: return Status::from_errno(error_number, path_ + ": cannot reserve space");
  }
}

FileId FileTable::add(File file) {
  size_t free = 0;
  while (free < files_.size() && files_[free].has_value()) ++free;
  if (free == files_.size()) files_.emplace_back();
  files_[free].emplace(std::move(file));
  return static_cast<FileId>(free);
}

void FileTable::remove(FileId file) {
  ZO_CHECK(holds(file));
  files_[file].reset();
}

const File& FileTable::operator[](FileId file) const {
  ZO_CHECK(holds(file));
  return *files_[file];
}

std::string FileTable::path(FileId file) const {
  if (holds(file)) return files_[file]->path();
  return "file " + std::to_string(file) + " (not open)";
}

}  // namespace zoffload
