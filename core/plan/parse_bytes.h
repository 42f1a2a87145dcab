// Amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/status.h"

namespace zoffload {

// "4096", "256MiB", "2 GB", "1.5GiB" as bytes. KB, MB, GB, TB count in thousands, KiB, MiB, GiB,
// TiB in 1024s; case does not matter. kInvalidArgument for anything else, and above 2^63 - 1 bytes.
Result<uint64_t> parse_bytes(std::string_view text);

}  // namespace zoffload
