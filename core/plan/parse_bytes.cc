#include "core/plan/parse_bytes.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

namespace zoffload {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 63;  // exclusive

std::optional<uint64_t> unit_bytes(std::string unit) {
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (unit.empty() || unit == "b") return 1;
  const bool binary = unit.size() == 3 && unit[1] == 'i';
  const bool decimal = unit.size() == 2;
  if (!(binary || decimal) || unit.back() != 'b') return std::nullopt;
  const size_t power = std::string_view("kmgt").find(unit[0]);
  if (power == std::string_view::npos) return std::nullopt;
  uint64_t bytes = 1;
  for (size_t i = 0; i <= power; ++i) bytes *= binary ? 1024 : 1000;
  return bytes;
}

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
  const Status bad(
      Code::kInvalidArgument,
      "'" + std::string(text) + "' is not an amount of bytes such as 4096, 256MiB or 2GB");
  const size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, number_end);
  std::string_view unit = text.substr(number_end);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const std::optional<uint64_t> scale = unit_bytes(std::string(unit));
  if (!scale) return bad;

  const char* const end = number.data() + number.size();
  if (number.find('.') == std::string_view::npos) {  // whole: exact at any size
    uint64_t count = 0;
    const auto parsed = std::from_chars(number.data(), end, count);
    if (parsed.ec != std::errc() || parsed.ptr != end) return bad;
    if (count > (kMaxBytes - 1) / *scale) return bad;
    return count * *scale;
  }
  double count = 0;
  const auto parsed = std::from_chars(number.data(), end, count);
  if (parsed.ec != std::errc() || parsed.ptr != end) return bad;
  const double bytes = std::round(count * static_cast<double>(*scale));
  if (bytes >= static_cast<double>(kMaxBytes)) return bad;
  return static_cast<uint64_t>(bytes);
}

}  // namespace zoffload
