#include "core/plan/config_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "core/base/check.h"
#include "core/base/state_format.h"
#include "core/plan/config_keys.h"
#include "core/plan/json_text.h"
#include "core/plan/nearest.h"
#include "core/plan/parse_bytes.h"

namespace zoffload {
namespace {

using nlohmann::json;

std::optional<int64_t> whole_number(const json& value) {
  constexpr double kExact = 0x1p53;  // doubles up to here are every integer
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (value.is_number_unsigned() && value.get<uint64_t>() > kMost) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::abs(number) > kExact || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

bool in_range(const Allowed& allowed, double number) {
  if (number < allowed.min) return false;
  return allowed.max_excluded ? number < allowed.max : number <= allowed.max;
}

bool equal_but_for_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::optional<json> normalised_string(const KeyRow& row, const json& value) {
  if (!value.is_string()) return std::nullopt;
  const std::vector<std::string_view> choices = choices_of(row.allowed);
  if (choices.empty()) return value;
  const auto& text = value.get_ref<const std::string&>();
  for (std::string_view choice : choices) {
    if (equal_but_for_case(text, choice)) return json(std::string(choice));
  }
  return std::nullopt;
}

std::optional<json> normalised_bytes(const json& value) {
  if (!value.is_string()) {
    const std::optional<int64_t> bytes = whole_number(value);
    return bytes ? std::optional<json>(*bytes) : std::nullopt;
  }
  const Result<uint64_t> bytes = parse_bytes(value.get_ref<const std::string&>());
  return bytes.ok() ? std::optional<json>(*bytes) : std::nullopt;
}

std::optional<json> normalised_strings(const json& value) {
  if (value.is_string()) return json::array({value});
  const auto is_string = [](const json& item) { return item.is_string(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_string)) return std::nullopt;
  return value;
}

std::optional<json> normalised_placement(const json& value) {
  json shares = {{"hbm", 0.0}, {"host", 0.0}, {"nvme", 0.0}};
  const auto add = [&](const std::string& tier, double share) {
    const std::string name = tier == "cpu" ? "host" : tier;  // DeepSpeed's word for host memory
    if (!shares.contains(name) || share < 0) return false;
    shares[name] = shares[name].get<double>() + share;
    return true;
  };
  if (value.is_string()) {
    return add(value.get<std::string>(), 1) ? std::optional(shares) : std::nullopt;
  }
  if (!value.is_object()) return std::nullopt;
  double sum = 0;
  for (const auto& [tier, share] : value.items()) {
    if (!share.is_number() || !add(tier, share.get<double>())) return std::nullopt;
    sum += share.get<double>();
  }
  constexpr double kRounding = 1e-6;  // 0.1 + 0.2 + 0.7
  return std::abs(sum - 1) <= kRounding ? std::optional(shares) : std::nullopt;
}

std::optional<json> normalised_rules(const json& value) {
  const auto is_rule = [](const json& rule) {
    if (!rule.is_object() || !rule.contains("params") || !rule["params"].is_string()) return false;
    const bool has_format = rule.contains("state_format");
    return has_format ? rule["state_format"].is_string() : rule.contains("placement");
  };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_rule)) return std::nullopt;
  return value;
}

// The value in the one form that the rest works with, or nothing if the row does not allow it:
// whole numbers as int64, bytes as a number, choices as the table spells them, strings as a list,
// placements as {"hbm", "host", "nvme"}.
std::optional<json> normalised(const KeyRow& row, const json& value) {
  const auto ranged = [&](std::optional<json> number) -> std::optional<json> {
    if (!number || !in_range(row.allowed, number->get<double>())) return std::nullopt;
    return number;
  };
  switch (row.type) {
    case KeyType::kBool: return value.is_boolean() ? std::optional(value) : std::nullopt;
    case KeyType::kInt: {
      const std::optional<int64_t> number = whole_number(value);
      return ranged(number ? std::optional<json>(*number) : std::nullopt);
    }
    case KeyType::kNumber:
      return ranged(value.is_number() ? std::optional<json>(value.get<double>()) : std::nullopt);
    case KeyType::kPair: {
      if (!value.is_array() || value.size() != 2) return std::nullopt;
      const auto fits = [&](const json& item) {
        return item.is_number() && in_range(row.allowed, item.get<double>());
      };
      return std::all_of(value.begin(), value.end(), fits) ? std::optional(value) : std::nullopt;
    }
    case KeyType::kBytes: return ranged(normalised_bytes(value));
    case KeyType::kString: return normalised_string(row, value);
    case KeyType::kStrings: return normalised_strings(value);
    case KeyType::kPlacement: return normalised_placement(value);
    case KeyType::kRules: return normalised_rules(value);
    case KeyType::kBlock: return value.is_object() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

json default_of(const KeyRow& row) {
  const json fallback = json::parse(row.fallback);
  return normalised(row, fallback).value_or(fallback);  // null and "auto" stay as they are
}

// "auto" that stands for a value to be filled in, not for a choice of the key's own.
bool is_auto(const KeyRow& row, const json& value) {
  const std::vector<std::string_view> choices = choices_of(row.allowed);
  return value == "auto" && std::find(choices.begin(), choices.end(), "auto") == choices.end();
}

std::string unknown_key(std::string_view path, std::span<const std::string_view> known) {
  return std::string(path) + ": unknown key; the nearest known one is " +
         std::string(nearest_key(path, known));
}

// The tiers in a placement are keys too, though no rows.
void check_tiers(std::string_view path, const json& placement, Problems& problems) {
  const std::array<std::string, 4> known = {joined(path, "hbm"), joined(path, "host"),
                                            joined(path, "cpu"), joined(path, "nvme")};
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const auto& item : placement.items()) {
    const std::string tier = joined(path, item.key());
    if (std::find(names.begin(), names.end(), tier) == names.end()) {
      problems.mistake(unknown_key(tier, names));
    }
  }
}

// What a rule is made of are keys too, though no rows.
void check_rules(std::string_view path, const json& rules, Problems& problems) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (!rules[i].is_object()) continue;  // the list is none of rules: said by the caller
    const std::string rule = std::string(path) + "[" + std::to_string(i) + "]";
    const std::array<std::string, 2> known = {joined(rule, "params"), joined(rule, "state_format")};
    const std::vector<std::string_view> names(known.begin(), known.end());
    for (const auto& [name, value] : rules[i].items()) {
      const std::string key = joined(rule, name);
      if (name == "placement") {
        problems.refuse(key + ": found " + found(value) +
                        ", which this version does not have: homes of some parameters' own");
      } else if (std::find(names.begin(), names.end(), key) == names.end()) {
        problems.mistake(unknown_key(key, names));
      }
    }
    if (!rules[i].contains("state_format") || !rules[i]["state_format"].is_string()) continue;
    const auto format = state_format_named(rules[i]["state_format"].get<std::string>());
    if (!format.ok()) problems.mistake(known[1] + ": " + format.status().message());
  }
}

}  // namespace

Status Problems::status() const {
  ZO_CHECK(any());
  std::vector<std::string> all = mistakes_;
  all.insert(all.end(), refusals_.begin(), refusals_.end());
  return Status(has_mistakes() ? Code::kInvalidArgument : Code::kUnsupported, join(all, "\n"));
}

Result<ConfigValues> ConfigValues::read(std::string_view json_text, Problems& problems) {
  Result<json> root = parse_json_object(json_text);
  if (!root.ok()) return root.status();
  ConfigValues values;
  for (const KeyRow& row : config_keys()) values.values_[row.name] = default_of(row);
  values.read_block("", *root, problems);
  if (!values.autos_.empty()) {
    problems.mistake("\"auto\" is left for " + join(values.autos_, ", ") +
                     "; allowed: values, or a launcher that fills them in");
  }
  if (problems.has_mistakes()) return problems.status();
  return values;
}

const json& ConfigValues::at(std::string_view key) const {
  const auto value = values_.find(key);
  ZO_CHECK(value != values_.end());
  return value->second;
}

void ConfigValues::resolve(std::string_view key, json value) {
  const auto slot = values_.find(key);
  ZO_CHECK(slot != values_.end());
  slot->second = std::move(value);
}

void ConfigValues::read_block(std::string_view block, const json& object, Problems& problems) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = joined(block, name);
    const bool dotted = name.find('.') != name.npos;  // "aio.block_size" at the top is not aio's
    const bool is_row = !dotted && find_key(path) != nullptr;
    const bool is_block = !dotted && has_keys_below(path);
    if (is_row) read_key(path, value, problems);
    if (is_block && value.is_object()) {
      read_block(path, value, problems);
    } else if (is_block && !is_row && !value.is_null()) {
      problems.mistake(path + ": found " + found(value) + "; allowed: an object");
    } else if (!is_row && !is_block) {
      problems.mistake(unknown_key(path, known_names()));
    }
  }
}

// REQUIRES: `path` is a row.
void ConfigValues::read_key(std::string_view path, const json& value, Problems& problems) {
  const KeyRow& row = *find_key(path);
  const bool is_legacy = row.treatment == Treatment::kLegacy;
  const KeyRow& target = is_legacy ? *find_key(row.alias) : row;
  const std::string name(row.name);
  named_.insert(row.name);
  if (is_legacy) {
    warnings_.push_back(
        name + " is an old name of " + std::string(target.name) +
        (target.treatment == Treatment::kNoEffect ? ", which has no effect here" : ""));
  } else if (row.treatment == Treatment::kNoEffect) {
    warnings_.push_back(name + " has no effect here: " + std::string(row.meaning));
  }

  if (value.is_null() && values_[row.name].is_null()) return;
  if (is_auto(row, value)) {
    const bool filled_in =
        value == values_[target.name] || target.treatment == Treatment::kNoEffect;
    if (!filled_in) autos_.push_back(name);
    return;
  }
  std::optional<json> normal = normalised(row, value);
  if (row.type == KeyType::kPlacement && value.is_object()) check_tiers(path, value, problems);
  if (row.type == KeyType::kRules && value.is_array()) check_rules(path, value, problems);
  if (!normal) {
    problems.mistake(name + ": found " + found(value) + "; allowed: " + describe_allowed(row));
    return;
  }
  if (row.type == KeyType::kBool && target.type == KeyType::kString) {  // cpu_offload and the like
    normal = normal->get<bool>() ? "cpu" : "none";
  }
  if (target.treatment == Treatment::kRefused && *normal != values_[target.name]) {
    problems.refuse(name + ": found " + found(value) +
                    ", which this version does not have: " + std::string(row.meaning));
  }
  if (!given_.insert(target.name).second) {
    problems.mistake(name + ": " + std::string(target.name) + " is given twice, under two names");
  }
  if (is_legacy) values_[row.name] = value;
  values_[target.name] = std::move(*normal);
}

}  // namespace zoffload
