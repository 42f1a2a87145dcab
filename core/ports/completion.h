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

  // For ports. REQUIRES: not pending.
  void start() {
    ZO_CHECK(state_ != State::kPending);
    state_ = State::kPending;
    status_ = Status();
    bytes_ = 0;
  }
  // For ports. REQUIRES: pending.
  void finish(Status status, uint64_t bytes = 0) {
    ZO_CHECK(state_ == State::kPending);
    status_ = std::move(status);
    bytes_ = bytes;
    state_ = State::kDone;
  }

 private:
  enum class State : uint8_t { kIdle, kPending, kDone };
  State state_ = State::kIdle;
  Status status_;
  uint64_t bytes_ = 0;
};

}  // namespace zoffload
