#include "bench/version.h"

#ifndef ZOFFLOAD_VERSION  // a file compiled by itself
#define ZOFFLOAD_VERSION "unknown"
#define ZOFFLOAD_BUILD "unknown"
#endif

namespace zoffload::bench {

const char* tool_version() { return ZOFFLOAD_VERSION; }
std::string tool_build() { return ZOFFLOAD_BUILD; }

}  // namespace zoffload::bench
