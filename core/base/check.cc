#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace zoffload {

void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "zoffload: check failed at %s:%d: %s\n", file, line, what);
  std::fflush(stderr);
  std::abort();
}

}  // namespace zoffload
