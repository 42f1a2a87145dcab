// The words and the code for a read, write or flush that the kernel answered with an error: which
// file, what the kernel said, and what to do about it.
#pragma once

#include <string>

#include "core/base/status.h"
#include "core/ports/io_queue.h"

namespace zoffload {

// kOutOfSpace, kTimeout (cancelled), kUnsupported, kOutOfMemory, or kIoError: a call that fails in
// the middle of a run is never the caller's to change. The errno is kept.
Status transfer_error(IoRequest::Kind kind, int error_number, const std::string& path);

}  // namespace zoffload
