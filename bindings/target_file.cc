#include "bindings/target_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace zoffload {
namespace {

constexpr mode_t kMode = 0666;  // less the umask, as for every file that a program makes

Status opening_error(int error_number, const std::string& path) {
  const Status status = Status::from_errno(error_number, path);
  switch (error_number) {
    case EMFILE:
      return Status(Code::kIoError,
                    status.message() + "; raise `ulimit -n`, or wait() for what is in flight",
                    error_number);
    case EISDIR: return Status(Code::kInvalidArgument, path + ": is a folder", error_number);
    default: return status;
  }
}

}  // namespace

Result<TargetFile> TargetFile::open(const std::string& path, Access access) {
  // O_NONBLOCK: a FIFO would wait for its other end before it can be refused.
  const int mode = access == Access::kRead ? O_RDONLY : O_RDWR;
  const int flags = mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const int fd = ::open(path.c_str(), access == Access::kRead ? flags : flags | O_CREAT, kMode);
  if (fd < 0) return opening_error(errno, path);
  TargetFile file(fd, path);
  ZO_TRY(file.identify());
  return file;
}

Status TargetFile::identify() {
  struct stat facts = {};
  if (fstat(fd_, &facts) != 0) return Status::from_errno(errno, path_);
  if (S_ISDIR(facts.st_mode)) return opening_error(EISDIR, path_);
  if (!S_ISREG(facts.st_mode)) {
    return Status(Code::kInvalidArgument, path_ + ": is no regular file (a device, pipe or socket)",
                  EINVAL);
  }
  // Some file systems take it by its word, and every transfer would end with EAGAIN.
  const int flags = fcntl(fd_, F_GETFL);
  if (fcntl(fd_, F_SETFL, flags & ~O_NONBLOCK) != 0) return Status::from_errno(errno, path_);
  key_ = {facts.st_dev, facts.st_ino};
  return Status();
}

TargetFile::TargetFile(TargetFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), key_(other.key_) {}

TargetFile::~TargetFile() {
  if (fd_ >= 0) ::close(fd_);
}

void TargetFile::expect_edges_only() const {
  static_cast<void>(posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM));
}

Result<uint64_t> TargetFile::bytes() const {
  struct stat facts = {};
  if (fstat(fd_, &facts) != 0) return Status::from_errno(errno, path_);
  return static_cast<uint64_t>(facts.st_size);
}

Status TargetFile::read(uint64_t offset, HostSpan to) const {
  while (!to.empty()) {
    const ssize_t moved = pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return Status::from_errno(errno, path_);
    if (moved == 0) {
      return Status(Code::kIoError, path_ + ": the file now ends before offset " +
                                        std::to_string(offset) + "; it was cut while it was read");
    }
    offset += static_cast<uint64_t>(moved);
    to = to.subspan(static_cast<size_t>(moved));
  }
  return Status();
}

Status TargetFile::write(HostSpan from, uint64_t offset) const {
  while (!from.empty()) {
    const ssize_t moved = pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return Status::from_errno(moved < 0 ? errno : ENOSPC, path_);
    offset += static_cast<uint64_t>(moved);
    from = from.subspan(static_cast<size_t>(moved));
  }
  return Status();
}

}  // namespace zoffload
