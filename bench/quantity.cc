#include "bench/quantity.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/plan/parse_bytes.h"

namespace zoffload::bench {
namespace {

constexpr double kSecondsMax = 366.0 * 24 * 3600;
constexpr uint32_t kCountMax = 1'000'000;

Status bad(std::string_view text, const char* meant) {
  return Status(Code::kInvalidArgument, "'" + std::string(text) + "' is not " + meant);
}

// A number that is not negative, and what follows it without its blanks.
bool split_number(std::string_view text, double& number, std::string_view& unit) {
  const char* const end = text.data() + text.size();
  const bool digit = !text.empty() && (text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
  if (!digit) return false;
  const auto parsed = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (parsed.ec != std::errc()) return false;
  unit = std::string_view(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return true;
}

}  // namespace

zoffload::Result<uint64_t> parse_size(std::string_view text) {
  std::string whole(text);
  if (!whole.empty() && std::string_view("kKmMgGtT").find(whole.back()) != std::string_view::npos) {
    whole += "iB";
  }
  const zoffload::Result<uint64_t> bytes = parse_bytes(whole);
  if (bytes.ok() && *bytes > 0) return *bytes;
  return bad(text, "a size above 0 such as 4096, 256KiB, 1M (= 1MiB) or 2GB");
}

zoffload::Result<double> parse_duration(std::string_view text) {
  const char* const meant = "a time such as 250ms, 10s or 2m (a bare number is seconds)";
  double number = 0;
  std::string_view unit;
  if (!split_number(text, number, unit)) return bad(text, meant);
  double scale = 1;
  if (unit == "ms") {
    scale = 1e-3;
  } else if (unit == "m") {
    scale = 60;
  } else if (!unit.empty() && unit != "s") {
    return bad(text, meant);
  }
  if (!(number * scale <= kSecondsMax)) return bad(text, meant);
  return number * scale;
}

zoffload::Result<double> parse_rate(std::string_view text) {
  const std::string_view size = text.ends_with("/s") ? text.substr(0, text.size() - 2) : text;
  const zoffload::Result<uint64_t> bytes = parse_size(size);
  if (bytes.ok()) return static_cast<double>(*bytes);
  return bad(text, "a rate above 0 such as 3GiB/s or 500MB/s");
}

zoffload::Result<double> parse_percent(std::string_view text) {
  double number = 0;
  std::string_view unit;
  const bool split = split_number(text, number, unit);
  if (split && (unit.empty() || unit == "%") && number <= 1e6) return number / 100;
  return bad(text, "a percentage such as 5%");
}

zoffload::Result<uint32_t> parse_count(std::string_view text) {
  uint32_t count = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, count);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == end;
  if (whole && count >= 1 && count <= kCountMax) return count;
  return bad(text, "a whole number from 1 to 1000000");
}

std::string format_rate(double bytes_per_s) {
  struct Unit {
    double binary;
    const char* binary_name;
    double decimal;
    const char* decimal_name;
  };
  constexpr Unit kUnits[] = {{1 << 30, "GiB/s", 1e9, "GB/s"},
                             {1 << 20, "MiB/s", 1e6, "MB/s"},
                             {1 << 10, "KiB/s", 1e3, "kB/s"}};
  const Unit* unit = kUnits;
  while (unit != std::end(kUnits) - 1 && bytes_per_s < 0.1 * unit->binary) ++unit;
  const double binary = bytes_per_s / unit->binary;
  const double decimal = bytes_per_s / unit->decimal;
  char text[96];
  const char* const format = binary < 100 ? "%.2f %s (%.2f %s)" : "%.1f %s (%.1f %s)";
  std::snprintf(text, sizeof text, format, binary, unit->binary_name, decimal, unit->decimal_name);
  return text;
}

std::string format_exact(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace zoffload::bench
