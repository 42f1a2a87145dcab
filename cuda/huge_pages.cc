#include "cuda/huge_pages.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "core/base/format.h"
#include "core/base/types.h"

namespace zoffload {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr double kEnough = 0.95;

uint64_t overlap_bytes(uint64_t begin, uint64_t end, uint64_t other_begin, uint64_t other_end) {
  const uint64_t first = std::max(begin, other_begin);
  const uint64_t last = std::min(end, other_end);
  return last > first ? last - first : 0;
}

}  // namespace

std::optional<double> huge_page_share(HostSpan memory, const std::string& smaps) {
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  const uint64_t begin = round_up(address, kHugePageBytes);
  const uint64_t end = (address + memory.size()) / kHugePageBytes * kHugePageBytes;
  std::ifstream lines(smaps);
  if (end <= begin || !lines) return std::nullopt;

  double huge_bytes = 0;
  uint64_t mapping_bytes = 0;
  uint64_t overlap = 0;  // of the mapping that the lines are about
  for (std::string line; std::getline(lines, line);) {
    unsigned long first = 0;
    unsigned long last = 0;
    unsigned long kib = 0;
    // "7f0000000000-7f0000200000 rw-p ..." begins a mapping, "AnonHugePages:  2048 kB" is of it.
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      // Its ends, less than a huge page each, cannot be huge.
      const uint64_t first_huge = round_up(first, kHugePageBytes);
      const uint64_t end_huge = last / kHugePageBytes * kHugePageBytes;
      mapping_bytes = end_huge > first_huge ? end_huge - first_huge : 0;
      overlap = overlap_bytes(begin, end, first_huge, end_huge);
    } else if (overlap > 0 && std::sscanf(line.c_str(), "AnonHugePages: %lu kB", &kib) == 1) {
      const double share = static_cast<double>(overlap) / static_cast<double>(mapping_bytes);
      huge_bytes += std::min(static_cast<double>(overlap), share * 1024.0 * kib);
    }
  }
  return huge_bytes / static_cast<double>(end - begin);
}

std::string huge_page_warning(HostSpan memory, const std::string& smaps,
                              const std::string& setting) {
  const std::optional<double> share = huge_page_share(memory, smaps);
  if (!share.has_value() || *share >= kEnough) return "";
  std::string enabled;
  std::getline(std::ifstream(setting), enabled);
  const bool allowed = enabled.find("[always]") != std::string::npos ||
                       enabled.find("[madvise]") != std::string::npos;
  return "only " + std::to_string(static_cast<int>(*share * 100)) + " % of " +
         format_bytes(memory.size()) +
         " of host memory lie in huge pages, and transfers to small pages are slower: " +
         (allowed ? "memory is fragmented; `echo 1 > /proc/sys/vm/compact_memory` before the start "
                    "helps"
                  : "allow them with `echo madvise > " + setting + "`");
}

}  // namespace zoffload
