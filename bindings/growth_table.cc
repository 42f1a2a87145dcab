#include "bindings/growth_table.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/base/check.h"
#include "core/base/format.h"
#include "core/base/types.h"

namespace zoffload {
namespace {

Status no_space(int error_number, const std::string& path, uint64_t bytes, uint64_t free_bytes) {
  const std::string needs = path + ": needs " + std::to_string(bytes) + " bytes more";
  switch (error_number) {
    case EFBIG:
      return Status(Code::kOutOfSpace,
                    needs + ", past the largest file allowed here; see `ulimit -f`", EFBIG);
    case EDQUOT: return Status(Code::kOutOfSpace, needs + ", past the disk quota", EDQUOT);
    default:
      return Status(Code::kOutOfSpace,
                    needs + ", free are " + format_bytes(free_bytes) + " (" +
                        std::to_string(free_bytes) + " bytes)",
                    ENOSPC);
  }
}

int allocate(int fd, int mode, uint64_t offset, uint64_t bytes) {
  int result;
  do {
    result = fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  return result;
}

// Gives back what a failed reservation holds past the end of the file, which was at `size`. A file
// that others have made longer since then keeps what they wrote.
void give_back(const TargetFile& file, uint64_t size) {
  const auto bytes = file.bytes();
  if (!bytes.ok() || *bytes != size) return;
  static_cast<void>(ftruncate(file.fd(), static_cast<off_t>(size)));
}

// Reserves [offset, end) of a file; where that cannot be done, only makes it longer. On an error
// its size, which others may see and change, is as it was.
// REQUIRES: `size`, the file's, is less than `end`.
Status reserve(const TargetFile& file, uint64_t size, uint64_t write_offset, uint64_t end) {
  const int fd = file.fd();
  const std::string& path = file.path();
  const uint64_t offset = std::max(write_offset, size);
  const uint64_t bytes = end - offset;
  struct statvfs space = {};
  if (fstatvfs(fd, &space) != 0) return Status::from_errno(errno, path);
  // Asked first: a hopeless fallocate() would fill the disk for everybody before it fails.
  const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  if (bytes / space.f_frsize > space.f_bfree) return no_space(ENOSPC, path, bytes, free_bytes);
  // The space first, then the size: it would grow bit by bit, up to where the disk is full.
  int result = allocate(fd, FALLOC_FL_KEEP_SIZE, offset, bytes);
  if (result == 0 || errno == EOPNOTSUPP) result = allocate(fd, 0, offset, bytes);
  // Not posix_fallocate(): where the call is missing glibc writes to the file, which others see.
  if (result != 0 && errno == EOPNOTSUPP) result = ftruncate(fd, static_cast<off_t>(end));
  if (result == 0) return Status();
  const int error_number = errno;
  give_back(file, size);
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return no_space(error_number, path, bytes, free_bytes);
    default: return Status::from_errno(error_number, path + ": cannot reserve space");
  }
}

bool holds_bytes(int fd, uint64_t begin, uint64_t end) {
  std::array<char, kPageBytes> bytes;
  ZO_CHECK(end - begin <= bytes.size());
  const ssize_t count = pread(fd, bytes.data(), end - begin, static_cast<off_t>(begin));
  return count < 0 || std::any_of(bytes.begin(), bytes.begin() + count, [](char c) { return c; });
}

// Whether anybody has written into [begin, end), which was reserved and not written since: whole
// pages are holes then, and parts of pages are zeros.
bool is_written(int fd, uint64_t begin, uint64_t end) {
  const uint64_t first_page = std::min(end, round_up(begin, kPageBytes));
  const uint64_t last_page = std::max(first_page, end / kPageBytes * kPageBytes);
  if (holds_bytes(fd, begin, first_page) || holds_bytes(fd, last_page, end)) return true;
  if (first_page == last_page) return false;
  const off_t data = lseek(fd, static_cast<off_t>(first_page), SEEK_DATA);
  return data < 0 ? errno != ENXIO : static_cast<uint64_t>(data) < last_page;
}

}  // namespace

uint64_t GrowthTable::Growth::bytes_to_keep() const {
  return ends.empty() ? wanted_bytes : std::max(wanted_bytes, *ends.rbegin());
}

// Whether others have written past `begin`: outside of what failed here.
bool GrowthTable::Growth::holds_others_bytes(int fd, uint64_t begin) const {
  for (const auto& [offset, end] : failed) {  // in ascending order
    if (offset > begin && is_written(fd, begin, offset)) return true;
    begin = std::max(begin, end);
  }
  return begin < reserved_bytes && is_written(fd, begin, reserved_bytes);
}

// What cannot be undone stays as it is: the write's own error is the one that counts. Bytes there
// may be those of another handle or process, which was told that they are safe.
void GrowthTable::Growth::undo(const TargetFile& file) {
  const uint64_t target = bytes_to_keep();
  if (target >= reserved_bytes || holds_others_bytes(file.fd(), target)) return;
  if (ftruncate(file.fd(), static_cast<off_t>(target)) == 0) reserved_bytes = target;
}

Status GrowthTable::begin(const TargetFile& file, uint64_t offset, uint64_t end) {
  ZO_CHECK(offset < end);
  const std::lock_guard lock(mutex_);
  ZO_ASSIGN_OR_RETURN(const uint64_t bytes, file.bytes());
  const auto position = files_.try_emplace(file.key()).first;
  Growth& growth = position->second;
  if (bytes != growth.reserved_bytes) {
    // The first write, or somebody else has changed the file meanwhile: what they wrote is kept.
    growth.wanted_bytes = std::max(growth.wanted_bytes, bytes);
    growth.reserved_bytes = bytes;
  }
  if (end > bytes) {
    const Status reserved = reserve(file, bytes, offset, end);
    if (!reserved.ok()) {
      if (growth.ends.empty()) files_.erase(position);
      return reserved;
    }
    growth.reserved_bytes = end;
  }
  growth.ends.insert(end);
  return Status();
}

void GrowthTable::ended(const TargetFile& file, uint64_t offset, uint64_t end, bool succeeded) {
  const std::lock_guard lock(mutex_);
  const auto position = files_.find(file.key());
  ZO_CHECK(position != files_.end());
  Growth& growth = position->second;
  const auto own = growth.ends.find(end);
  ZO_CHECK(own != growth.ends.end());
  growth.ends.erase(own);
  if (succeeded) {
    growth.wanted_bytes = std::max(growth.wanted_bytes, end);
  } else {
    growth.failed.emplace(offset, end);
    const auto bytes = file.bytes();
    if (bytes.ok() && *bytes == growth.reserved_bytes) growth.undo(file);
  }
  if (growth.ends.empty()) files_.erase(position);
}

}  // namespace zoffload
