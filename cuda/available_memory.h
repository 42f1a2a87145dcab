// How much memory this process may still take: what the kernel and its cgroup have left.
#pragma once

#include <cstdint>
#include <string>

namespace zoffload {

// The smaller of MemAvailable in `meminfo` and what memory.max leaves in `cgroup` (version 2); ~0
// where neither can be read.
uint64_t available_memory_bytes(const std::string& meminfo = "/proc/meminfo",
                                const std::string& cgroup = "/sys/fs/cgroup");

}  // namespace zoffload
