// The requests that a queue has in flight, by index: what was asked, and the caller's completion.
// Its size is the queue's depth, so nothing is allocated after the start. Used from the control
// thread.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "aio/transfer_error.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/ports/io_queue.h"

namespace zoffload {

class RequestTable {
 public:
  explicit RequestTable(uint32_t depth) : entries_(depth) {
    for (uint32_t i = depth; i > 0; --i) free_.push_back(i - 1);
  }

  uint32_t depth() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t in_flight() const { return static_cast<uint32_t>(entries_.size() - free_.size()); }
  bool holds(uint32_t index) const { return entries_[index].completion != nullptr; }
  const IoRequest& operator[](uint32_t index) const { return entries_[index].request; }

  // Starts `completion` and keeps the request. REQUIRES: in_flight() < depth().
  uint32_t add(const IoRequest& request, Completion& completion) {
    ZO_CHECK(!free_.empty());
    completion.start();
    const uint32_t index = free_.back();
    free_.pop_back();
    entries_[index] = {request, &completion};
    return index;
  }

  // Delivers the kernel's result, bytes moved or a negative errno, and frees the entry. `path`
  // names the file.
  void finish(uint32_t index, int64_t result, const std::string& path) {
    const IoRequest::Kind kind = entries_[index].request.kind;
    if (result < 0) {
      fail(index, transfer_error(kind, static_cast<int>(-result), path));
    } else {
      take(index).finish(Status(), static_cast<uint64_t>(result));
    }
  }
  void fail(uint32_t index, Status status) { take(index).finish(std::move(status)); }

  // For a forked child, whose copies of the completions nobody will ever write: gives all of them
  // back.
  void abandon() {
    for (uint32_t i = 0; i < depth(); ++i) {
      if (holds(i)) finish(i, -ECANCELED, "the queue belongs to the process that forked");
    }
  }

 private:
  struct Entry {
    IoRequest request;
    Completion* completion = nullptr;  // the caller's; null: the entry is free
  };

  Completion& take(uint32_t index) {
    ZO_CHECK(holds(index));
    Completion& completion = *entries_[index].completion;
    entries_[index] = {};
    free_.push_back(index);
    return completion;
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
};

}  // namespace zoffload
