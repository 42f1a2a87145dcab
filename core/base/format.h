// Quantities as people read them: "3.2 GiB", "1.5 ms".
#pragma once

#include <cstdint>
#include <string>

namespace zoffload {

std::string format_bytes(uint64_t bytes);    // binary units: "512 B", "3.2 GiB"
std::string format_seconds(double seconds);  // "850 us", "1.5 ms", "2.1 s"

}  // namespace zoffload
