#include "bench/request_pump.h"

#include <utility>

namespace zoffload::bench {
namespace {

// How long a wait may keep the source from seeing that it is time to stop.
constexpr uint64_t kWaitNsMax = 20'000'000;

}  // namespace

RequestPump::RequestPump(FileQueue& queue, FileId file, HostSpan pool)
    : queue_(queue), file_(file), pool_(pool) {}

Status RequestPump::run(RequestSource& source, uint64_t block_bytes, uint32_t depth) {
  ZO_CHECK(depth > 0 && depth <= queue_.depth());
  ZO_CHECK(pool_.size() / block_bytes >= depth);
  depth_ = depth;
  while (slots_.size() < depth) slots_.emplace_back();
  free_.clear();
  for (uint64_t begin = 0; begin + block_bytes <= pool_.size(); begin += block_bytes) {
    free_.push_back(pool_.subspan(begin, block_bytes));
  }
  Status first_error;
  for (;;) {
    SteadyTime now = std::chrono::steady_clock::now();
    if (first_error.ok()) refill(source, now);
    if (busy_ == 0) return first_error;
    queue_.wait(kWaitNsMax);
    if (queue_.poll() == 0) continue;
    now = std::chrono::steady_clock::now();
    for (Slot& slot : slots_) {
      if (!slot.busy || !slot.completion.done()) continue;
      Status status = collect(slot, source, now);
      if (first_error.ok()) first_error = std::move(status);
    }
  }
}

void RequestPump::refill(RequestSource& source, SteadyTime now) {
  for (uint32_t i = 0; i < depth_ && busy_ < depth_; ++i) {
    Slot& slot = slots_[i];
    if (slot.busy) continue;
    if (!source.next(now, slot.request)) return;
    slot.memory = free_.front();
    free_.pop_front();
    slot.moved = 0;
    if (slot.request.write) source.prepare(slot.request, slot.memory);
    slot.submitted = std::chrono::steady_clock::now();
    slot.busy = true;
    ++busy_;
    submit(slot);
  }
}

void RequestPump::submit(Slot& slot) {
  IoRequest request;
  request.kind = slot.request.write ? IoRequest::Kind::kWrite : IoRequest::Kind::kRead;
  request.file = file_;
  request.offset = slot.request.offset + slot.moved;
  request.memory = slot.memory.subspan(slot.moved);
  queue_.submit(request, slot.completion);
}

Status RequestPump::collect(Slot& slot, RequestSource& source, SteadyTime now) {
  const BlockRequest request = slot.request;
  const HostSpan memory = slot.memory;
  Status status = slot.completion.status();
  if (status.ok()) {
    const uint64_t bytes = slot.completion.bytes();
    slot.moved += bytes;
    const bool whole = slot.moved == memory.size();
    if (!whole && bytes > 0 && slot.moved % queue_.alignment() == 0) {
      submit(slot);
      return Status();
    }
    if (!whole) {
      status = Status(Code::kIoError, "only " + std::to_string(slot.moved) + " of " +
                                          std::to_string(memory.size()) + " bytes were moved");
    }
  }
  slot.busy = false;
  --busy_;
  free_.push_back(memory);
  if (status.ok()) return source.finished(request, memory, slot.submitted, now);
  return status.within((request.write ? "write at " : "read at ") + std::to_string(request.offset));
}

}  // namespace zoffload::bench
