#include "aio/transfer_error.h"

#include <cerrno>
#include <utility>

namespace zoffload {
namespace {

const char* remedy(int error_number) {
  switch (error_number) {
    case ENOSPC: return "; free some space there, or use another path";
    case EDQUOT: return "; raise the quota of this user, or use another path";
    case EIO: return "; the device failed or is gone: look for it in the kernel's log (`dmesg`)";
    case EROFS:
      return "; the file system went read-only, mostly after an error of its device: look into the "
             "kernel's log (`dmesg`)";
    case ESTALE:
    case ENODEV:
    case ENXIO:
    case ENOTCONN: return "; its mount or its device is gone: mount it again";
    default: return "";
  }
}

}  // namespace

Status transfer_error(IoRequest::Kind kind, int error_number, const std::string& path) {
  const Status plain = Status::from_errno(error_number, path);
  const Code code = plain.code() == Code::kInvalidArgument ? Code::kIoError : plain.code();
  std::string words = plain.message() + remedy(error_number);
  // The kernel tells it once: a second flush would succeed without the lost bytes.
  const bool lost =
      kind == IoRequest::Kind::kFlush && (code == Code::kIoError || code == Code::kOutOfSpace);
  if (lost) words += "; what was written to this file since its last flush may be lost";
  return Status(code, std::move(words), error_number);
}

}  // namespace zoffload
