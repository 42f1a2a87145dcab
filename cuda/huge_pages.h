// How much of a piece of memory lies in huge pages. Transfers to and from small pages reach 0.55 to
// 0.8 of the bandwidth of huge ones, whatever the I/O engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/span.h"

namespace zoffload {

// The share, 0 to 1, of the part of `memory` that could lie in 2 MiB pages. Nothing where there is
// no such part, or `smaps` cannot be read. Exact for memory that is whole mappings; of a mapping
// that is larger, the huge pages are taken to be spread evenly.
std::optional<double> huge_page_share(HostSpan memory,
                                      const std::string& smaps = "/proc/self/smaps");

// Empty at 95 % or more, and where there is no answer; else a sentence with the share and what
// helps, which `setting` decides.
std::string huge_page_warning(
    HostSpan memory, const std::string& smaps = "/proc/self/smaps",
    const std::string& setting = "/sys/kernel/mm/transparent_hugepage/enabled");

}  // namespace zoffload
