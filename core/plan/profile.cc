#include "core/plan/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/check.h"
#include "core/base/types.h"
#include "core/plan/config_keys.h"
#include "core/plan/config_values.h"
#include "core/plan/json_text.h"
#include "core/plan/nearest.h"

namespace zoffload {
namespace {

using Json = nlohmann::ordered_json;  // printed in the order of the fields

constexpr Allowed kAny = {};
constexpr Allowed kEngines = {.choices = "io_uring|libaio|threads"};
constexpr Allowed kSchemas = {.choices = kProfileSchema};
constexpr Allowed kThreads = {.min = 1, .max = 65536};
constexpr const char* kPathText = "an absolute path, each once";

// The fields of each struct, once, for the printer and the reader.
template <typename Visitor>
void visit(Visitor& visitor, PathProfile& path) {
  visitor.path("path", path.path);
  visitor.text("io_engine", path.io_engine, kEngines);
  visitor.count("block_bytes", path.block_bytes, find_key("aio.block_size")->allowed, kPageBytes);
  visitor.count("queue_depth", path.queue_depth, find_key("aio.queue_depth")->allowed, 1);
  visitor.figure("read_bytes_per_s", path.read_bytes_per_s);
  visitor.figure("write_bytes_per_s", path.write_bytes_per_s);
  visitor.figure("mixed_bytes_per_s", path.mixed_bytes_per_s);
}

template <typename Visitor>
void visit(Visitor& visitor, UpdateProfile& update) {
  visitor.text("optimizer", update.optimizer, kAny);
  visitor.text("format", update.format, kAny);
  visitor.text("dtype", update.dtype, kAny);
  visitor.count("threads", update.threads, kThreads, 1);
  visitor.figure("numel_per_s", update.numel_per_s);
}

template <typename Visitor>
void visit(Visitor& visitor, LinkProfile& link) {
  visitor.figure_if_measured("to_device_bytes_per_s", link.to_device_bytes_per_s);
  visitor.figure_if_measured("to_host_bytes_per_s", link.to_host_bytes_per_s);
  visitor.figure_if_measured("both_bytes_per_s", link.both_bytes_per_s);
}

template <typename Visitor>
void visit(Visitor& visitor, Profile& profile) {
  std::string schema = kProfileSchema;
  visitor.text("schema", schema, kSchemas);
  visitor.text("host", profile.host, kAny);
  visitor.text("measured", profile.measured, kAny);
  visitor.list("paths", profile.paths);
  visitor.list("updates", profile.updates);
  visitor.block("link", profile.link);
  visitor.figure_if_measured("memory_bytes_per_s", profile.memory_bytes_per_s);
}

class Printer {
 public:
  template <typename T>
  static Json print(T value) {
    Printer printer;
    visit(printer, value);
    return std::move(printer.object_);
  }

  void path(const char* name, std::string& value) { object_[name] = value; }
  void text(const char* name, std::string& value, const Allowed&) { object_[name] = value; }
  template <typename T>
  void count(const char* name, T& value, const Allowed&, uint64_t) {
    object_[name] = value;
  }
  void figure(const char* name, double& value) { object_[name] = value; }
  void figure_if_measured(const char* name, double& value) {
    if (value != 0) object_[name] = value;
  }
  template <typename T>
  void list(const char* name, std::vector<T>& values) {
    object_[name] = Json::array();
    for (const T& value : values) object_[name].push_back(print(value));
  }
  template <typename T>
  void block(const char* name, T& value) {
    if (value != T()) object_[name] = print(value);
  }

 private:
  Json object_ = Json::object();
};

// Reads one object; every key that visit() does not ask for is a mistake.
class Reader {
 public:
  template <typename T>
  static void read(const nlohmann::json& object, const std::string& where, T& value,
                   Problems& problems) {
    Reader reader(object, where, problems);
    visit(reader, value);
    reader.check_names();
  }

  void path(const char* name, std::string& value) {
    const nlohmann::json* const given = find(name, kPathText);
    if (given == nullptr) return;
    if (given->is_string()) value = given->get<std::string>();
    if (!value.starts_with('/')) mistake(name, *given, kPathText);
  }

  void text(const char* name, std::string& value, const Allowed& allowed) {
    const std::string text = describe_allowed({name, KeyType::kString, {}, {}, allowed, {}, {}});
    const nlohmann::json* const given = find(name, text);
    if (given == nullptr) return;
    if (!given->is_string()) return mistake(name, *given, text);
    const std::vector<std::string_view> choices = choices_of(allowed);
    const auto word = given->get<std::string>();
    if (!choices.empty() && std::find(choices.begin(), choices.end(), word) == choices.end()) {
      return mistake(name, *given, text);
    }
    value = word;
  }

  template <typename T>
  void count(const char* name, T& value, const Allowed& allowed, uint64_t unit) {
    std::string text = describe_allowed({name, KeyType::kInt, {}, {}, allowed, {}, {}});
    if (unit > 1) text += ", a multiple of " + std::to_string(unit);
    const nlohmann::json* const given = find(name, text);
    if (given == nullptr) return;
    const uint64_t number = given->is_number_unsigned() ? given->get<uint64_t>() : 0;
    const auto real = static_cast<double>(number);
    if (real < allowed.min || real > allowed.max || number % unit != 0) {
      return mistake(name, *given, text);
    }
    value = static_cast<T>(number);
  }

  void figure(const char* name, double& value) {
    if (find(name, kFigureText) != nullptr) figure_if_measured(name, value);
  }

  void figure_if_measured(const char* name, double& value) {
    const nlohmann::json* const given = find_if_given(name);
    if (given == nullptr) return;
    const double number = given->is_number() ? given->get<double>() : 0;
    if (!(number > 0)) return mistake(name, *given, kFigureText);
    value = number;
  }

  template <typename T>
  void list(const char* name, std::vector<T>& values) {
    const nlohmann::json* const given = find(name, kListText);
    if (given == nullptr) return;
    if (!given->is_array()) return mistake(name, *given, kListText);
    for (size_t i = 0; i < given->size(); ++i) {
      const std::string item = std::string(name) + "[" + std::to_string(i) + "]";
      read_block(item, (*given)[i], values.emplace_back());
    }
  }

  template <typename T>
  void block(const char* name, T& value) {
    const nlohmann::json* const given = find_if_given(name);
    if (given != nullptr) read_block(name, *given, value);
  }

 private:
  static constexpr const char* kFigureText = "a number > 0";
  static constexpr const char* kListText = "a list of objects";

  Reader(const nlohmann::json& object, const std::string& where, Problems& problems)
      : object_(object), where_(where), problems_(problems) {}

  const nlohmann::json* find_if_given(const char* name) {
    names_.push_back(joined(where_, name));
    const auto item = object_.find(name);
    return item == object_.end() ? nullptr : &*item;
  }

  const nlohmann::json* find(const char* name, const std::string& allowed) {
    const nlohmann::json* const given = find_if_given(name);
    if (given == nullptr) {
      problems_.mistake(joined(where_, name) + ": found nothing; allowed: " + allowed);
    }
    return given;
  }

  template <typename T>
  void read_block(const std::string& name, const nlohmann::json& given, T& value) {
    if (!given.is_object()) return mistake(name, given, "an object");
    read(given, joined(where_, name), value, problems_);
  }

  void mistake(const std::string& name, const nlohmann::json& given, const std::string& allowed) {
    problems_.mistake(joined(where_, name) + ": found " + found(given) + "; allowed: " + allowed);
  }

  void check_names() {
    const std::vector<std::string_view> known(names_.begin(), names_.end());
    for (const auto& item : object_.items()) {
      const std::string name = joined(where_, item.key());
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      problems_.mistake(name + ": unknown key; the nearest known one is " +
                        std::string(nearest_key(name, known)));
    }
  }

  const nlohmann::json& object_;
  const std::string where_;  // its path, "paths[0]"; empty at the top
  Problems& problems_;
  std::vector<std::string> names_;  // that visit() asked for
};

// Without the slashes at the end; "/" becomes "".
std::string_view trimmed(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

bool holds(std::string_view folder, std::string_view path) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

const PathProfile* Profile::find(std::string_view path) const {
  ZO_CHECK(path.starts_with('/'));
  const std::string_view wanted = trimmed(path);
  const PathProfile* deepest = nullptr;
  size_t longest = 0;
  for (const PathProfile& entry : paths) {
    const std::string_view folder = trimmed(entry.path);
    if (!holds(folder, wanted) || (deepest != nullptr && folder.size() <= longest)) continue;
    deepest = &entry;
    longest = folder.size();
  }
  return deepest;
}

Result<Profile> parse_profile(std::string_view json_text) {
  ZO_ASSIGN_OR_RETURN(const nlohmann::json root, parse_json_object(json_text));
  // Another schema may have any other keys: nothing else is worth saying of it.
  const auto schema = root.find("schema");
  if (schema == root.end() || *schema != kProfileSchema) {
    const std::string what = schema == root.end() ? "nothing" : found(*schema);
    return Status(Code::kInvalidArgument,
                  "schema: found " + what + "; allowed: " + std::string(kProfileSchema));
  }
  Problems problems;
  Profile profile;
  Reader::read(root, "", profile, problems);
  if (problems.any()) return problems.status();
  for (size_t i = 0; i < profile.paths.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (trimmed(profile.paths[i].path) != trimmed(profile.paths[j].path)) continue;
      problems.mistake("paths[" + std::to_string(i) + "].path: found " +
                       found(profile.paths[i].path) + " again; allowed: " + kPathText);
    }
  }
  if (problems.any()) return problems.status();
  return profile;
}

std::string print_profile(const Profile& profile) {
  constexpr int kIndent = 2;
  return Printer::print(profile).dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace zoffload
