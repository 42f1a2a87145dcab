// The first error, which sticks: every wait that may now never end returns it, and so does every
// later call.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/engine/task.h"

namespace zoffload {

class Failure {
 public:
  bool happened() const { return !status_.ok(); }
  const Status& status() const { return status_; }

  // Returns whether this was the first.
  bool set(const Status& status) {
    ZO_CHECK(!status.ok());
    if (happened()) return false;
    status_ = status;
    return true;
  }

 private:
  Status status_;
};

// A wait for something that only a healthy engine brings about: a turn, a settled home, a known
// norm. After the first failure it may never come, so it ends with that failure.
//
//   Status status = co_await Until(failure, [&] { return current == turn; }, "turn", turn);
template <typename Predicate>
class Until : public Wait {
 public:
  Until(const Failure& failure, Predicate predicate, const char* what, uint64_t number,
        WaitFor waits_for = {})
      : failure_(failure),
        predicate_(std::move(predicate)),
        what_(what),
        number_(number),
        waits_for_(waits_for) {}
  bool ready() override { return failure_.happened() || predicate_(); }
  std::string what() const override { return std::string(what_) + " " + std::to_string(number_); }
  WaitFor waits_for() const override { return waits_for_; }
  Status await_resume() const { return failure_.status(); }

 private:
  const Failure& failure_;
  Predicate predicate_;
  const char* what_;
  uint64_t number_;
  WaitFor waits_for_;
};

}  // namespace zoffload
