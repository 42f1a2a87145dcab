#include "core/base/status.h"

#include <cerrno>
#include <system_error>

namespace zoffload {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk: return "kOk";
    case Code::kInvalidArgument: return "kInvalidArgument";
    case Code::kOutOfSpace: return "kOutOfSpace";
    case Code::kOutOfMemory: return "kOutOfMemory";
    case Code::kIoError: return "kIoError";
    case Code::kCorruption: return "kCorruption";
    case Code::kDeviceError: return "kDeviceError";
    case Code::kCommError: return "kCommError";
    case Code::kTimeout: return "kTimeout";
    case Code::kUnsupported: return "kUnsupported";
  }
  return "unknown";
}

Status Status::from_errno(int error_number, std::string_view what) {
  Code code = Code::kIoError;
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: code = Code::kOutOfSpace; break;
    case ENOMEM: code = Code::kOutOfMemory; break;
    case ETIMEDOUT:
    case ETIME:
    case ECANCELED: code = Code::kTimeout; break;
    case EINVAL:
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EROFS:
    case EISDIR:
    case EEXIST: code = Code::kInvalidArgument; break;
    case ENOSYS:
    case EOPNOTSUPP: code = Code::kUnsupported; break;
    default: break;
  }
  const std::string reason = std::generic_category().message(error_number);
  return Status(code, std::string(what) + ": " + reason, error_number);
}

std::string Status::to_string() const {
  return ok() ? std::string("ok") : std::string(code_name(code_)) + ": " + message_;
}

Status Status::within(std::string_view where) const {
  if (ok()) return *this;
  return Status(code_, std::string(where) + ": " + message_, error_number_);
}

}  // namespace zoffload
