// What this program was built from. The values come from the build, see git_version.cmake.
#pragma once

#include <string>

namespace zoffload::bench {

const char* tool_version();  // "0.1.0"
const char* tool_git();      // "5fea12c", "5fea12c-dirty", or "unknown" outside a work tree
std::string tool_build();    // "Release, GNU 12.2.0"

}  // namespace zoffload::bench
