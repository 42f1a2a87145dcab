#include "cuda/available_memory.h"

#include <algorithm>
#include <fstream>

namespace zoffload {

namespace {

constexpr uint64_t kUnknown = ~uint64_t{0};

// The number at the start of the file; "max" is none: no limit.
uint64_t read_number(const std::string& path) {
  uint64_t value = 0;
  return std::ifstream(path) >> value ? value : kUnknown;
}

// The number behind `key` in a file of lines "key number rest".
uint64_t read_line(const std::string& path, const std::string& key, uint64_t fallback) {
  std::ifstream lines(path);
  std::string word;
  uint64_t value = 0;
  for (std::string rest; lines >> word >> value; std::getline(lines, rest)) {
    if (word == key) return value;
  }
  return fallback;
}

// The page cache counts as used there, but gives way.
uint64_t left_in_cgroup(const std::string& cgroup) {
  const uint64_t limit = read_number(cgroup + "/memory.max");
  const uint64_t current = read_number(cgroup + "/memory.current");
  if (limit == kUnknown || current == kUnknown) return kUnknown;
  const std::string stat = cgroup + "/memory.stat";
  const uint64_t cache = read_line(stat, "inactive_file", 0) + read_line(stat, "active_file", 0);
  return limit - std::min(limit, current - std::min(current, cache));
}

}  // namespace

uint64_t available_memory_bytes(const std::string& meminfo, const std::string& cgroup) {
  const uint64_t kib = read_line(meminfo, "MemAvailable:", kUnknown);
  return std::min(left_in_cgroup(cgroup), kib == kUnknown ? kUnknown : kib * 1024);
}

}  // namespace zoffload
