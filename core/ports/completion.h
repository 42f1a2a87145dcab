// The slot in which one asynchronous operation reports back. The caller owns it and keeps it alive
// and unmoved until done(). A port calls start() when it accepts the operation and finish() from
// its poll(), on the control thread, exactly once. After done() it may be used for another
// operation.
#pragma once

#include <cstdint>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace zoffload {

// Keeps the books of somebody's operations; see Completion::observe().
class CompletionObserver {
 public:
  virtual void moved(uint32_t ticket) = 0;  // the bytes are there: what is left is the CPU's part
  virtual void finished(uint32_t ticket) = 0;

 protected:
  ~CompletionObserver() = default;
};

class Completion {
 public:
  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion() {
    ZO_CHECK(state_ != State::kPending);
  }  // the classic lifetime fault shows at once

  bool pending() const { return state_ == State::kPending; }
  bool done() const { return state_ == State::kDone; }
  const Status& status() const {
    ZO_CHECK(done());
    return status_;
  }  // REQUIRES: done()
  uint64_t bytes() const {
    ZO_CHECK(done());
    return bytes_;
  }  // REQUIRES: done(); bytes moved

  // The observer hears of the rest of this one operation, under its own number for it, not 0. It
  // outlives the operation. REQUIRES: pending.
  void observe(CompletionObserver& observer, uint32_t ticket) {
    ZO_CHECK(pending());
    observer_ = &observer;
    ticket_ = ticket;
  }
  uint32_t ticket() const { return ticket_; }  // 0: nobody observes it, or it is done
  bool has_moved() const { return moved_; }

  // For ports. REQUIRES: not pending.
  void start() {
    ZO_CHECK(state_ != State::kPending);
    state_ = State::kPending;
    status_ = Status();
    bytes_ = 0;
    moved_ = false;
  }
  // For ports whose operations end with work of the CPU: now, only that is left. May be left out,
  // or repeated. REQUIRES: pending.
  void note_moved() {
    ZO_CHECK(pending());
    if (std::exchange(moved_, true) || observer_ == nullptr) return;
    observer_->moved(ticket_);
  }
  // For ports. REQUIRES: pending.
  void finish(Status status, uint64_t bytes = 0) {
    ZO_CHECK(state_ == State::kPending);
    status_ = std::move(status);
    bytes_ = bytes;
    state_ = State::kDone;
    CompletionObserver* const observer = std::exchange(observer_, nullptr);
    if (observer != nullptr) observer->finished(std::exchange(ticket_, 0));
  }

 private:
  enum class State : uint8_t { kIdle, kPending, kDone };
  State state_ = State::kIdle;
  Status status_;
  bool moved_ = false;
  uint32_t ticket_ = 0;
  CompletionObserver* observer_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace zoffload
