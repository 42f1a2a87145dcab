// Errors of the world as values. A Status is a code that says what the caller can do, an errno
// where the kernel gave one, and a message that grows outward: "update layers.3: nvme: /mnt/a:
// Input/output error". A Result is a Status or a value. Both are [[nodiscard]]: an error is handled
// or passed on, never lost.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"

namespace zoffload {

enum class Code {
  kOk = 0,
  kInvalidArgument,  // change the call
  kOutOfSpace,       // free disk space, or another path
  kOutOfMemory,      // a larger budget, or a smaller plan
  kIoError,          // the storage failed
  kCorruption,       // the bytes read are not the bytes written
  kDeviceError,      // the accelerator failed
  kCommError,        // a peer or the network failed
  kTimeout,          // nothing moved for stall_timeout
  kUnsupported,      // this machine or this version cannot do it
};

const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, int error_number = 0)
      : code_(code), error_number_(error_number), message_(std::move(message)) {
    ZO_CHECK(code != Code::kOk);
  }

  // "what: strerror(error_number)", with the code that fits the errno (ENOSPC, ENOMEM, ETIMEDOUT,
  // EINVAL ...).
  static Status from_errno(int error_number, std::string_view what);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  int error_number() const { return error_number_; }
  const std::string& message() const { return message_; }
  std::string to_string() const;  // "kIoError: message", or "ok"

  // The same error with "where: " in front of its message. An ok Status stays ok.
  Status within(std::string_view where) const;

 private:
  Code code_ = Code::kOk;
  int error_number_ = 0;
  std::string message_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) { ZO_CHECK(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() {
    ZO_CHECK(ok());
    return *value_;
  }
  const T& value() const {
    ZO_CHECK(ok());
    return *value_;
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace zoffload

#define ZO_CONCAT_(a, b) a##b
#define ZO_CONCAT(a, b) ZO_CONCAT_(a, b)

// Returns from the function when the expression is an error.
#define ZO_TRY(expression)                           \
  do {                                               \
    ::zoffload::Status zo_try_status = (expression); \
    if (!zo_try_status.ok()) return zo_try_status;   \
  } while (false)

// ZO_ASSIGN_OR_RETURN(auto x, f()): x is f()'s value, or the function returns f()'s error.
#define ZO_ASSIGN_OR_RETURN(declaration, expression) \
  ZO_ASSIGN_OR_RETURN_(ZO_CONCAT(zo_result_, __LINE__), declaration, expression)
#define ZO_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return result.status();                   \
  declaration = std::move(result.value())
