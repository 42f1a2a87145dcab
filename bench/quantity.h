// Amounts as people write them on a command line, and as the program writes them back. Every error
// says what was found and what is meant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace zoffload::bench {

// "4096", "256KiB", "2 GB", and bare K, M, G, T, which are binary here. Above 0.
zoffload::Result<uint64_t> parse_size(std::string_view text);
// "250ms", "10s", "2m"; a bare number is seconds. Not negative, at most a year.
zoffload::Result<double> parse_duration(std::string_view text);
// "3GiB/s", "500 MB/s" in bytes per second; "/s" may be left out.
zoffload::Result<double> parse_rate(std::string_view text);
// "5%" as 0.05; a bare number is a percentage too.
zoffload::Result<double> parse_percent(std::string_view text);
// A whole number from 1 to a million.
zoffload::Result<uint32_t> parse_count(std::string_view text);

// The entries of a comma list, each parsed. Empty entries are errors.
template <typename T>
zoffload::Result<std::vector<T>> parse_list(std::string_view text,
                                            zoffload::Result<T> (*parse)(std::string_view)) {
  std::vector<T> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    zoffload::Result<T> value = parse(text.substr(begin, end - begin));
    if (!value.ok()) return value.status();
    values.push_back(std::move(value.value()));
    begin = end + 1;
  }
  return values;
}

std::string format_rate(double bytes_per_s);  // "3.21 GiB/s (3.45 GB/s)"
std::string format_exact(uint64_t bytes);     // "256KiB", "4GiB", "1000B": as parse_size() takes it

}  // namespace zoffload::bench
