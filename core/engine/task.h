// The coroutine runtime, first half: Task, a lazily started coroutine that returns one value to the
// one that awaits it, and Wait, the polled condition at which a flow parks. The second half is
// flow_set.h.
//
// Rules that keep GCC 12 correct: one co_await per statement, never inside a condition, a ternary
// or an argument list; parameters by value.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/engine/wait_for.h"

namespace zoffload {

class Flow;

// What a parked flow waits for. ready() is polled by FlowSet::tick() and may have no side effect
// until it is true.
class Wait {
 public:
  virtual ~Wait() = default;
  virtual bool ready() = 0;
  virtual std::string what() const = 0;  // for the watchdog: "slot of pool staging (4 of 4 lent)"
  virtual WaitFor waits_for() const { return {}; }  // for the books

  bool await_ready() { return ready(); }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> leaf) {
    park(*leaf.promise().flow, leaf);
  }

 private:
  void park(Flow& flow, std::coroutine_handle<> leaf);
};

template <typename T>
class Task;

struct PromiseBase {
  Flow* flow = nullptr;                  // the flow that this coroutine is a part of
  std::coroutine_handle<> continuation;  // who awaits us; none for a flow's outermost task

  struct Final {
    bool await_ready() noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept {
      const auto next = self.promise().continuation;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  std::suspend_always initial_suspend() noexcept { return {}; }
  Final final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { std::terminate(); }  // core/ throws nothing
};

template <typename T>
class [[nodiscard]] Task {
 public:
  struct promise_type : PromiseBase {
    std::optional<T> value;
    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    template <typename U>
    void return_value(U&& result) {
      value.emplace(std::forward<U>(result));
    }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // co_await task: runs it as a part of the awaiting flow.
  bool await_ready() const { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> parent) {
    handle_.promise().flow = parent.promise().flow;
    handle_.promise().continuation = parent;
    return handle_;
  }
  T await_resume() { return std::move(*handle_.promise().value); }

  // For Flow.
  Handle handle() const { return handle_; }

 private:
  explicit Task(Handle handle) : handle_(handle) {}
  Handle handle_;
};

}  // namespace zoffload

// Returns from the coroutine when the status is an error. The expression holds no co_await.
#define ZO_CO_TRY(expression)                               \
  do {                                                      \
    ::zoffload::Status zo_co_try_status = (expression);     \
    if (!zo_co_try_status.ok()) co_return zo_co_try_status; \
  } while (false)
