#include "aio/file_queue.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/base/types.h"

namespace zoffload {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

// Far enough for everybody, and no sum with the clock overflows.
constexpr uint64_t kWaitNsMax = uint64_t{1} << 61;

uint64_t ns_until(SteadyTime deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return left.count() <= 0 ? 0 : static_cast<uint64_t>(std::chrono::nanoseconds(left).count());
}

}  // namespace

FileQueue::FileQueue(const IoQueueOptions& options)
    : owner_(getpid()),
      want_direct_(options.want_direct),
      requests_(options.depth),
      progress_(options.depth) {
  ZO_CHECK(options.depth > 0);
}

uint64_t FileQueue::alignment() const { return kPageBytes; }

Status FileQueue::accepts(const File&) const { return Status(); }

Result<std::string> FileQueue::register_arena(HostSpan) { return std::string(); }

void FileQueue::unregister_arena(HostSpan) {}

void FileQueue::attached(FileId) {}

void FileQueue::detaching(FileId) {}

Result<FileId> FileQueue::open(const std::string& path, uint64_t bytes) {
  ZO_ASSIGN_OR_RETURN(File file, File::create(path, bytes, want_direct_));
  if (const Status accepted = accepts(file); !accepted.ok()) {
    ::unlink(path.c_str());
    return accepted;
  }
  if (!file.why_buffered().empty() && !warned_) {
    spdlog::warn("{}: buffered, {}: expect less bandwidth and much more CPU time", path,
                 file.why_buffered());
    warned_ = true;
  }
  return adopt(std::move(file));
}

FileId FileQueue::adopt(File file) {
  const FileId id = files_.add(std::move(file));
  attached(id);
  return id;
}

void FileQueue::release(FileId file) {
  ZO_CHECK(files_.holds(file));
  for (uint32_t i = 0; i < depth(); ++i) {
    ZO_CHECK(!requests_.holds(i) || requests_[i].file != file);
  }
  detaching(file);
  files_.remove(file);
}

void FileQueue::submit(const IoRequest& request, Completion& completion) {
  const uint32_t index = requests_.add(request, completion);
  progress_[index] = {};
  to_send_.push_back(index);
  send();
}

uint32_t FileQueue::poll() {
  if (in_flight() == 0) return 0;
  collect(0);  // first: it may make room for what waits
  send();
  return deliver();
}

void FileQueue::wait(uint64_t ns_max) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min(ns_max, kWaitNsMax));
  while (in_flight() > 0) {
    send();
    // All refused for now: nobody would wake us.
    if (!answers_.empty() || to_send_.size() == in_flight()) return;
    if (!collect(ns_until(deadline))) return;
    if (ns_until(deadline) == 0) return;
  }
}

void FileQueue::cancel() {
  std::vector<uint32_t> to_ask_back;
  for (uint32_t i = 0; i < depth(); ++i) {
    if (started(i) && !progress_[i].cancelled) to_ask_back.push_back(i);
    if (requests_.holds(i)) progress_[i].cancelled = true;
  }
  for (const uint32_t index : std::exchange(to_send_, {})) arrived(index, -ECANCELED);
  ask_back(to_ask_back);
}

bool FileQueue::started(uint32_t index) const {
  return requests_.holds(index) && progress_[index].state == State::kStarted;
}

void FileQueue::send() {
  while (!to_send_.empty()) {
    const uint32_t index = to_send_.front();
    to_send_.pop_front();
    progress_[index].state = State::kStarted;
    if (start(index)) continue;
    progress_[index].state = State::kWaiting;
    to_send_.push_front(index);
    return;
  }
}

void FileQueue::arrived(uint32_t index, int64_t result) {
  ZO_CHECK(requests_.holds(index));
  ZO_CHECK(progress_[index].state != State::kArrived);
  // "Not now" is no result. For a flush neither: the kernel keeps the errors of writes as EIO,
  // ENOSPC or EDQUOT, and those are reported once and never asked for again.
  if (result == -EINTR || result == -EAGAIN) {
    if (!progress_[index].cancelled) {
      progress_[index].state = State::kWaiting;
      to_send_.push_back(index);
      return;
    }
    result = -ECANCELED;
  }
  progress_[index].state = State::kArrived;
  answers_.push_back({index, result});
}

uint32_t FileQueue::deliver() {
  for (const Answer& answer : answers_) {
    const FileId file = requests_[answer.index].file;
    if (answer.result == -EOPNOTSUPP && files_.holds(file)) {
      if (Status refused = accepts(files_[file]); !refused.ok()) {
        requests_.fail(answer.index, std::move(refused));  // it knows more than the errno
        continue;
      }
    }
    requests_.finish(answer.index, answer.result, files_.path(file));
  }
  const auto delivered = static_cast<uint32_t>(answers_.size());
  answers_.clear();
  return delivered;
}

bool FileQueue::abandoned_in_child() {
  if (getpid() == owner_) return false;
  requests_.abandon();
  return true;
}

void FileQueue::drain() {
  constexpr uint64_t kSecondNs = 1'000'000'000;
  for (uint32_t i = 0; i < depth(); ++i) ZO_CHECK(!requests_.holds(i) || progress_[i].cancelled);
  while (in_flight() > 0) {
    if (poll() == 0) wait(kSecondNs);
  }
}

}  // namespace zoffload
