// The one table of config keys: every key that a file may contain, what it means, and what becomes
// of it. The reader, the error messages, `explain` and the tests all work from these rows, so a new
// key is a new row (and, where it is honoured, a field in Config).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zoffload {

enum class KeyType : uint8_t {
  kBool,
  kInt,  // a whole number; 5e8 is one
  kNumber,
  kPair,   // two numbers
  kBytes,  // a whole number, or text such as "256MiB"
  kString,
  kStrings,    // one string or a list of them
  kPlacement,  // a tier's name, or fractions over the tiers: {"cpu": 0.6, "nvme": 0.4}
  kRules,      // a list of {"params": text, "state_format": a name}
  kBlock,      // an object. Without rows below it, its contents are free
};

enum class Treatment : uint8_t {
  kHonoured,
  kLegacy,    // an old name of another row; accepted with a warning
  kNoEffect,  // accepted with a warning
  kRefused,   // a feature this version lacks: any value but the default is an error
};
const char* treatment_name(Treatment treatment);

// The values a row allows, within its type.
struct Allowed {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool max_excluded = false;
  std::string_view choices = {};  // separated by '|'; empty: any
};

struct KeyRow {
  std::string_view name;  // dotted path
  KeyType type;
  Treatment treatment;
  std::string_view fallback;  // the default, as JSON; null: none; "auto": found from other keys
  Allowed allowed;
  std::string_view meaning;  // one sentence; for refused and no-effect rows it also says why

  // kLegacy: the row it stands for. A bool that stands for a device means "cpu" or "none".
  std::string_view alias;
};

std::span<const KeyRow> config_keys();

const KeyRow* find_key(std::string_view name);  // null where there is none
bool has_keys_below(std::string_view block);    // is there a row named "block...."?
std::vector<std::string_view> known_names();    // of every row and every block above one
std::vector<std::string_view> choices_of(const Allowed& allowed);
std::string describe_allowed(const KeyRow& row);  // "a whole number >= 1", "one of none, cpu, nvme"

}  // namespace zoffload
