// JSON files that people write, read for messages that help: keys are dotted paths, a key given
// twice is an error, comments are allowed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace zoffload {

// kInvalidArgument: not JSON, no object, nested more than 64 deep, or a key given twice.
Result<nlohmann::json> parse_json_object(std::string_view text);

// How a value looks in a message: its JSON in ASCII, cut where it is long.
std::string found(const nlohmann::json& value);

std::string joined(std::string_view block, std::string_view name);  // "block.name"
std::string join(const std::vector<std::string>& texts, std::string_view separator);

}  // namespace zoffload
