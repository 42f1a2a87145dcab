#include "bench/finding.h"

#include <algorithm>

namespace zoffload::bench {
namespace {

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

}  // namespace

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kWarn: return "warn";
    case Level::kFail: return "fail";
  }
  return "unknown";
}

Json Finding::to_json() const {
  return {{"level", level_name(level)}, {"what", what}, {"says", says}, {"remedy", remedy}};
}

std::string Finding::to_string() const {
  const std::string line = padded(level_name(level), 5) + " " + padded(what, 11) + " " + says;
  return remedy.empty() ? line : line + " -> " + remedy;
}

std::pair<std::string, std::string> split_remedy(const std::string& sentence) {
  const size_t end = sentence.find("; ");
  if (end == std::string::npos) return {sentence, ""};
  return {sentence.substr(0, end), sentence.substr(end + 2)};
}

}  // namespace zoffload::bench
