#include "core/plan/json_text.h"

#include <algorithm>
#include <set>

namespace zoffload {
namespace {

using nlohmann::json;

// nlohmann keeps the last of two equal keys; this sees both.
class DuplicateFinder {
 public:
  void event(json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) objects_.emplace_back();
    if (event == json::parse_event_t::object_end) objects_.pop_back();
    if (event != json::parse_event_t::key) return;
    Object& object = objects_.back();
    object.current = parsed.get<std::string>();
    if (!object.names.insert(object.current).second) duplicates_.push_back(path());
  }
  const std::vector<std::string>& duplicates() const { return duplicates_; }

 private:
  struct Object {
    std::set<std::string> names;
    std::string current;
  };
  std::string path() const {
    std::string path;
    for (const Object& object : objects_) path = joined(path, object.current);
    return path;
  }
  std::vector<Object> objects_;  // from the outermost to the one being read
  std::vector<std::string> duplicates_;
};

}  // namespace

std::string joined(std::string_view block, std::string_view name) {
  return block.empty() ? std::string(name) : std::string(block) + "." + std::string(name);
}

std::string join(const std::vector<std::string>& texts, std::string_view separator) {
  std::string all;
  for (const std::string& text : texts) {
    if (!all.empty()) all += separator;
    all += text;
  }
  return all;
}

Result<json> parse_json_object(std::string_view text) {
  constexpr int kMaxDepth = 64;  // what follows recurses
  bool too_deep = false;
  DuplicateFinder finder;
  const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
    too_deep = too_deep || depth > kMaxDepth;
    if (!too_deep) finder.event(event, parsed);
    return !too_deep;
  };
  try {
    constexpr bool kThrow = true;
    constexpr bool kIgnoreComments = true;  // DeepSpeed reads hjson, so files have comments
    json root = json::parse(text.begin(), text.end(), callback, kThrow, kIgnoreComments);
    if (too_deep) return Status(Code::kInvalidArgument, "nested too deeply");
    if (!finder.duplicates().empty()) {
      return Status(Code::kInvalidArgument, "given twice: " + join(finder.duplicates(), ", "));
    }
    if (root.is_object()) return root;
    return Status(Code::kInvalidArgument, "found " + found(root) + "; allowed: an object");
  } catch (const json::exception& error) {
    std::string reason = error.what();  // may quote bytes that are not UTF-8
    std::replace_if(
        reason.begin(), reason.end(), [](char c) { return (c & 0x80) != 0; }, '?');
    return Status(Code::kInvalidArgument, "not JSON: " + reason);
  }
}

std::string found(const json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace zoffload
