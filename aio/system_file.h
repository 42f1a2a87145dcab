// Small files of /proc and /sys, of which any may be missing on some kernel or in some container.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace zoffload {

// Without blanks at its ends; empty if it cannot be read.
inline std::string read_system_file(const std::filesystem::path& path) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// The whole text as a number; none for "max", "-1" and the like.
inline std::optional<uint64_t> parse_system_number(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

inline std::optional<uint64_t> read_system_number(const std::filesystem::path& path) {
  return parse_system_number(read_system_file(path));
}

}  // namespace zoffload
