#include "bench/value_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "bench/quantity.h"
#include "bench/read_document.h"
#include "core/base/format.h"

namespace zoffload::bench {
namespace {

enum class Unit : uint8_t { kBytes, kRate, kNanoseconds, kSeconds, kPerSecond, kPercent, kShare };

struct Suffix {
  std::string_view text;
  Unit unit;
  const char* kept = "";  // what remains of it in the name
};

// The longer ones first: "_bytes_per_s" ends in "_s" too.
constexpr std::array<Suffix, 12> kSuffixes = {
    {{"_bytes_per_parameter", Unit::kBytes, " per parameter"},
     {"_bytes_per_step", Unit::kBytes, " per step"},
     {"_seconds_per_step", Unit::kSeconds, " per step"},
     {"_bytes_per_s", Unit::kRate},
     {"_per_s", Unit::kPerSecond},
     {"_bytes_max", Unit::kBytes, " max"},
     {"_bytes", Unit::kBytes},
     {"_seconds", Unit::kSeconds},
     {"_percent", Unit::kPercent},
     {"_share_of_bound", Unit::kShare, " share of bound"},
     {"_ns", Unit::kNanoseconds},
     {"_s", Unit::kSeconds}}};

const Suffix* suffix_of(std::string_view key) {
  for (const Suffix& suffix : kSuffixes) {
    const std::string_view name = suffix.text.substr(1);
    if (key == name || key.ends_with(suffix.text)) return &suffix;
  }
  return nullptr;
}

std::string plain_number(const Json& value) {
  if (value.is_number_integer()) return value.dump();
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value.get<double>());
  return text;
}

std::string percent_text(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", percent);
  return text;
}

// "1.25 G/s": of things that are no bytes.
std::string per_second_text(double number) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (number >= 1000 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s/s", number, kUnits[unit]);
  return text;
}

std::string number_text(const std::string& key, const Json& value) {
  const Suffix* suffix = suffix_of(key);
  const double number = value.get<double>();
  if (suffix == nullptr) return plain_number(value);
  if (suffix->unit == Unit::kPercent) return percent_text(number);
  if (suffix->unit == Unit::kShare) return percent_text(100 * number);
  if (number < 0) return plain_number(value);
  switch (suffix->unit) {
    case Unit::kBytes: return short_bytes(number);
    case Unit::kRate: return format_rate(number);
    case Unit::kNanoseconds: return nanoseconds_text(number);
    case Unit::kSeconds: return number == 0 ? "0 s" : format_seconds(number);
    case Unit::kPerSecond: return per_second_text(number);
    case Unit::kPercent:
    case Unit::kShare: break;
  }
  return plain_number(value);
}

void add_leaves(const std::string& place, const std::string& key, const Json& value, Leaves& out) {
  const bool is_list = value.is_array() && std::any_of(value.begin(), value.end(), [](auto& entry) {
                         return entry.is_structured();
                       });
  if (!is_list && !value.is_object()) {
    const std::string text = value.is_null() ? "" : value_text(key, value);
    if (!text.empty()) out.emplace_back(place, text);
    return;
  }
  const std::string start = place.empty() ? "" : place + " / ";
  for (const auto& [inner, entry] : value.items()) {
    if (!is_list) {
      // A unit in the key of an object holds for all in it: "stall_seconds": {"load": 1.2}.
      const bool inherits = suffix_of(inner) == nullptr && suffix_of(key) != nullptr;
      add_leaves(start + key_text(inner), inherits ? key : inner, entry, out);
      continue;
    }
    // An entry of a list is known by its name, or else by its number from 1.
    std::string name = std::to_string(std::stoul(inner) + 1);
    for (const char* names : {"name", "path", "device"}) {
      name = string_or(entry, names, name);
    }
    add_leaves(start + name, key, entry, out);
  }
}

}  // namespace

std::string short_bytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", bytes, kUnits[unit]);
  return text;
}

std::string nanoseconds_text(double ns) {
  constexpr std::array<const char*, 4> kUnits = {"ns", "us", "ms", "s"};
  size_t unit = 0;
  while (ns >= 1000 && unit + 1 < kUnits.size()) {
    ns /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", ns, kUnits[unit]);
  return text;
}

std::string key_text(const std::string& key) {
  std::string text = key;
  const Suffix* suffix = suffix_of(key);
  if (suffix != nullptr && key.size() > suffix->text.size()) {
    text.resize(key.size() - suffix->text.size());
    text += suffix->kept;
  }
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string value_text(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number()) return number_text(key, value);
  if (!value.is_array()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  for (const Json& entry : value) text += (text.empty() ? "" : ", ") + value_text(key, entry);
  return text;
}

std::string params_text(const Json& params, const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) {
    const Json& value = at_or_null(params, key);
    if (value.is_null()) continue;
    text += (text.empty() ? "" : ", ") + key_text(key) + " " + value_text(key, value);
  }
  return text;
}

std::string params_text(const Json& params) {
  std::vector<std::string> keys;
  for (const auto& item : params.items()) keys.push_back(item.key());
  return params_text(params, keys);
}

std::vector<std::string> differing_keys(const std::vector<const Json*>& params) {
  std::vector<std::string> keys;
  for (const Json* one : params) {
    for (const auto& item : one->items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) keys.push_back(item.key());
    }
  }
  std::erase_if(keys, [&params](const std::string& key) {
    const Json& first = at_or_null(*params.front(), key);
    return std::all_of(params.begin(), params.end(),
                       [&](const Json* one) { return at_or_null(*one, key) == first; });
  });
  return keys;
}

Leaves leaves_of(const Json& json) {
  Leaves leaves;
  add_leaves("", "", json, leaves);
  return leaves;
}

}  // namespace zoffload::bench
