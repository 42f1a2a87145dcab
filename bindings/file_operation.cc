#include "bindings/file_operation.h"

#include <unistd.h>

#include <chrono>

#include "core/base/check.h"

namespace zoffload {

FileOperation::FileOperation(Kind kind, TargetFile file, uint64_t offset, uint64_t bytes,
                             GrowthTable& growths)
    : kind_(kind),
      path_(file.path()),
      offset_(offset),
      bytes_(bytes),
      owner_(getpid()),
      growths_(growths),
      file_(std::move(file)) {}

bool FileOperation::orphaned() const { return !done_ && getpid() != owner_; }

bool FileOperation::wait(uint64_t ns_max) {
  if (done_ || orphaned()) return true;
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, std::chrono::nanoseconds(ns_max),
                            [this] { return done_.load(); });
}

Status FileOperation::status() const {
  ZO_CHECK(done_);
  return status_;  // nobody writes to it any more
}

void FileOperation::expect_parts(uint32_t count) {
  const std::lock_guard lock(mutex_);
  part_count_ = count;
  if (count == 0) finish();
}

void FileOperation::finish_part(Status status) {
  const std::lock_guard lock(mutex_);
  ZO_CHECK(part_count_ > 0);
  if (status_.ok() && !status.ok()) status_ = in_context(status);
  if (--part_count_ == 0) finish();
}

// REQUIRES: mutex_ is held.
void FileOperation::finish() {
  if (kind_ == Kind::kWrite && bytes_ > 0) {
    growths_.ended(*file_, offset_, offset_ + bytes_, status_.ok());
  }
  file_.reset();
  done_ = true;
  finished_.notify_all();
}

// "/mnt/a: writing 10 bytes at offset 0: Input/output error", whether or not the path is in it.
Status FileOperation::in_context(const Status& status) const {
  const char* verb = kind_ == Kind::kRead ? ": reading " : ": writing ";
  const std::string prefix = path_ + ": ";
  std::string reason = status.message();
  if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
  return Status(status.code(), std::move(reason), status.error_number())
      .within(path_ + verb + std::to_string(bytes_) + " bytes at offset " +
              std::to_string(offset_));
}

}  // namespace zoffload
