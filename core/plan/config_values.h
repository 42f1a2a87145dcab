// A config file read against the table of keys: each key's value or default, checked for type and
// range. What the keys mean to each other is config.cc's business.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace zoffload {

// Everything that is wrong with a file, so that the user can mend it in one go.
class Problems {
 public:
  void mistake(std::string text) { mistakes_.push_back(std::move(text)); }
  void refuse(std::string text) { refusals_.push_back(std::move(text)); }

  bool has_mistakes() const { return !mistakes_.empty(); }
  bool any() const { return has_mistakes() || !refusals_.empty(); }

  // A line each. kUnsupported if there are only refusals, else kInvalidArgument. REQUIRES: any().
  Status status() const;

 private:
  std::vector<std::string> mistakes_;  // the file is wrong
  std::vector<std::string> refusals_;  // the file is right and this version lacks something
};

class ConfigValues {
 public:
  // Refusals go to `problems`, for the caller to report with those it finds itself; mistakes are
  // the error returned.
  static Result<ConfigValues> read(std::string_view json_text, Problems& problems);

  // The key's value, or its default. REQUIRES: a row of the table.
  const nlohmann::json& at(std::string_view key) const;
  template <typename T>
  T get(std::string_view key) const {
    return at(key).get<T>();
  }

  // Whether the file has the key under this name, and whether it gives the key a value: null and
  // "auto" name a key only, and a legacy key names itself but gives its alias a value.
  bool named(std::string_view key) const { return named_.contains(key); }
  bool given(std::string_view key) const { return given_.contains(key); }

  const std::vector<std::string>& warnings() const { return warnings_; }

  // What the rest of the reader finds out: the value in effect of a key that was not given, and
  // more warnings.
  void resolve(std::string_view key, nlohmann::json value);
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

 private:
  ConfigValues() = default;
  void read_block(std::string_view block, const nlohmann::json& object, Problems& problems);
  void read_key(std::string_view path, const nlohmann::json& value, Problems& problems);

  // By the names in the table, which live as long as the program. Values are normalised: of the
  // row's type in one form, whatever form the file had.
  std::map<std::string_view, nlohmann::json> values_;
  std::set<std::string_view> named_;
  std::set<std::string_view> given_;
  std::vector<std::string> warnings_;
  std::vector<std::string> autos_;  // keys whose "auto" nobody resolved
};

}  // namespace zoffload
