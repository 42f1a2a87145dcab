// Checks for our own mistakes: a broken invariant, a caller that ignored a REQUIRES. They are on in
// every build and end the process with the place and the text. The world's errors (a disk, an
// accelerator, a user's argument) are never checks; they are Status values. The condition must have
// no side effect.
#pragma once

namespace zoffload {

[[noreturn]] void check_failed(const char* file, int line, const char* what);

}  // namespace zoffload

#define ZO_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::zoffload::check_failed(__FILE__, __LINE__, #condition))
