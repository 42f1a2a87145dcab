// Small config files and the errors expected of them, for the tests of the config reader.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/config.h"

namespace zoffload {

using nlohmann::json;

inline json base() { return {{"train_batch_size", 8}, {"zero_optimization", {{"stage", 3}}}}; }

inline json* at_path(json& file, std::string_view path) {
  json* value = &file;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    value = &(*value)[std::string(path.substr(0, dot))];
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return value;
}

// The smallest valid file with one more key.
inline json with(std::string_view path, json value, json file = base()) {
  *at_path(file, path) = std::move(value);
  return file;
}

inline Result<Config> parse(const json& file, uint32_t world_size = 1) {
  return parse_config(file.dump(), world_size);
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// Every part of an expected error is in its message.
inline void expect_error(const Result<Config>& config, Code code,
                         const std::vector<std::string>& parts) {
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(code_name(config.status().code()), std::string(code_name(code)));
  for (const std::string& part : parts) {
    EXPECT_TRUE(contains(config.status().message(), part))
        << "no '" << part << "' in: " << config.status().message();
  }
}

}  // namespace zoffload
