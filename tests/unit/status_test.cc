#include "core/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

namespace zoffload {
namespace {

constexpr Code kErrors[] = {Code::kInvalidArgument, Code::kOutOfSpace, Code::kOutOfMemory,
                            Code::kIoError,         Code::kCorruption, Code::kDeviceError,
                            Code::kCommError,       Code::kTimeout,    Code::kUnsupported};

// Goal: the code says what the caller can do. Method: one errno of each family.
TEST(Status, FromErrnoChoosesTheCode) {
  const std::pair<int, Code> cases[] = {
      {ENOSPC, Code::kOutOfSpace},      {EDQUOT, Code::kOutOfSpace},
      {ENOMEM, Code::kOutOfMemory},     {ETIMEDOUT, Code::kTimeout},
      {ETIME, Code::kTimeout},          {ECANCELED, Code::kTimeout},
      {EINVAL, Code::kInvalidArgument}, {ENOENT, Code::kInvalidArgument},
      {EACCES, Code::kInvalidArgument}, {EEXIST, Code::kInvalidArgument},
      {EROFS, Code::kInvalidArgument},  {ENOTDIR, Code::kInvalidArgument},
      {EISDIR, Code::kInvalidArgument}, {ENOSYS, Code::kUnsupported},
      {EOPNOTSUPP, Code::kUnsupported}, {EIO, Code::kIoError},
      {EBADF, Code::kIoError}};
  for (const auto& [number, code] : cases) {
    const Status status = Status::from_errno(number, "/mnt/a");
    EXPECT_EQ(status.code(), code) << number;
    EXPECT_EQ(status.error_number(), number);
  }
  EXPECT_EQ(Status::from_errno(EIO, "/mnt/a").message(), "/mnt/a: Input/output error");
}

// Goal: context grows outward and loses nothing. Method: two layers around an errno.
TEST(Status, WithinPutsThePlaceInFront) {
  const Status inner = Status::from_errno(EIO, "/mnt/a");
  const Status outer = inner.within("nvme").within("update layers.3");
  EXPECT_EQ(outer.message(), "update layers.3: nvme: /mnt/a: Input/output error");
  EXPECT_EQ(outer.code(), Code::kIoError);
  EXPECT_EQ(outer.error_number(), EIO);
  EXPECT_TRUE(Status().within("anywhere").ok());
  EXPECT_EQ(Status().within("anywhere").message(), "");
}

// Goal: people can read it. Method: compare the text; every code has a name of its own.
TEST(Status, ToString) {
  EXPECT_EQ(Status().to_string(), "ok");
  EXPECT_EQ(Status(Code::kCommError, "rank 3 died").to_string(), "kCommError: rank 3 died");
  std::set<std::string> names = {code_name(Code::kOk)};
  for (Code code : kErrors) names.insert(code_name(code));
  EXPECT_EQ(names.size(), std::size(kErrors) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
}

// Goal: an error without a code, and the value of an error, are our mistakes. Method: death tests.
TEST(StatusDeathTest, MisuseEndsTheProcess) {
  EXPECT_DEATH(static_cast<void>(Status(Code::kOk, "fine")), "code != Code::kOk");
  EXPECT_DEATH(static_cast<void>(Result<int>(Status())), "!status_.ok\\(\\)");
  const Result<int> error(Status(Code::kIoError, "gone"));
  EXPECT_DEATH(static_cast<void>(error.value()), "ok\\(\\)");
  EXPECT_DEATH(static_cast<void>(*error), "ok\\(\\)");
}

// Goal: a Result is a value or an error, also of a type that only moves. Method: both.
TEST(Result, HoldsAValueOrAnError) {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(7));
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(**value, 7);
  EXPECT_EQ(*std::move(value.value()), 7);
  const Result<int> error(Status(Code::kTimeout, "late"));
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().code(), Code::kTimeout);
  EXPECT_EQ(Result<std::string>(std::string("abc"))->size(), 3u);
}

Result<int> half(int number, int& calls) {
  ++calls;
  if (number % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return number / 2;
}

Status quarter(int number, int& calls, int& result) {
  ZO_ASSIGN_OR_RETURN(const int once, half(number, calls));
  ZO_ASSIGN_OR_RETURN(result, half(once, calls));
  ZO_TRY(Status());
  ZO_TRY(half(result, calls).status());
  ++calls;
  return Status();
}

// Goal: the macros evaluate once, pass values on and return at the first error. Method: count
// calls.
TEST(Result, MacrosReturnAtTheFirstError) {
  int calls = 0;
  int result = 0;
  EXPECT_TRUE(quarter(8, calls, result).ok());
  EXPECT_EQ(result, 2);
  EXPECT_EQ(calls, 4);
  calls = 0;
  EXPECT_EQ(quarter(6, calls, result).message(), "odd");
  EXPECT_EQ(calls, 2);
  calls = 0;
  EXPECT_EQ(quarter(4, calls, result).message(), "odd");
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace zoffload
