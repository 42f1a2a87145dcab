#include "core/plan/config_optimizer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "core/plan/json_text.h"

namespace zoffload {
namespace {

constexpr std::string_view kParams = "optimizer.params.";

struct Type {
  std::string_view title;
  std::string_view settings;  // that not all have, separated by spaces
  double lr = 1e-3;
  double eps = 1e-8;
};

constexpr Type kTypes[] = {
    {"Adam", "betas eps adam_w_mode"},
    {"AdamW", "betas eps adam_w_mode"},
    {"SGD", "momentum dampening nesterov"},
    {"Lion", "betas"},
    {"Adagrad", "eps lr_decay initial_accumulator_value", 1e-2, 1e-10},
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool has_word(std::string_view words, std::string_view word) {
  return (" " + std::string(words) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

// A foreign setting may be written out as its default: it asks for nothing.
void check_settings(const ConfigValues& values, const Type& type, Problems& problems) {
  const auto anywhere = [](std::string_view setting) {
    return std::any_of(std::begin(kTypes), std::end(kTypes),
                       [&](const Type& any) { return has_word(any.settings, setting); });
  };
  for (const KeyRow& row : config_keys()) {
    if (!row.name.starts_with(kParams) || !values.given(row.name)) continue;
    const std::string_view setting = row.name.substr(kParams.size());
    if (!anywhere(setting) || has_word(type.settings, setting)) continue;
    if (values.at(row.name) == nlohmann::json::parse(row.fallback)) continue;
    problems.mistake(std::string(row.name) + ": found " + found(values.at(row.name)) + "; " +
                     std::string(type.title) + " has no such setting");
  }
  if (values.get<bool>("optimizer.params.nesterov") &&
      (values.get<double>("optimizer.params.momentum") <= 0 ||
       values.get<double>("optimizer.params.dampening") != 0)) {
    problems.mistake(
        "optimizer.params.nesterov: found true; allowed: only with momentum above 0 "
        "and dampening 0");
  }
}

void read_settings(ConfigValues& values, const Type& type, Config& config) {
  const auto number = [&](std::string_view setting, double by_default) {
    const std::string key = std::string(kParams) + std::string(setting);
    if (!values.given(key)) values.resolve(key, by_default);
    return values.get<double>(key);
  };
  config.lr = number("lr", type.lr);
  config.eps = number("eps", type.eps);
  const auto betas = values.get<std::array<double, 2>>("optimizer.params.betas");
  config.beta1 = betas[0];
  config.beta2 = betas[1];
  config.weight_decay = values.get<double>("optimizer.params.weight_decay");
  config.momentum = values.get<double>("optimizer.params.momentum");
  config.dampening = values.get<double>("optimizer.params.dampening");
  config.nesterov = values.get<bool>("optimizer.params.nesterov");
  config.lr_decay = values.get<double>("optimizer.params.lr_decay");
  config.initial_accumulator_value =
      values.get<double>("optimizer.params.initial_accumulator_value");
}

}  // namespace

void read_optimizer(ConfigValues& values, Config& config, Problems& problems) {
  const auto is_given = [&](const KeyRow& row) {
    return row.name.starts_with("optimizer.") && values.given(row.name);
  };
  config.optimizer_given = std::any_of(config_keys().begin(), config_keys().end(), is_given);

  const std::string name = lower(values.get<std::string>("optimizer.type"));
  const Type* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const Type& row) { return lower(row.title) == name; });
  if (type == std::end(kTypes)) {
    std::string known;
    for (const Type& row : kTypes) known += (known.empty() ? "" : ", ") + std::string(row.title);
    problems.refuse("optimizer.type: found " + found(values.at("optimizer.type")) +
                    ", which this version does not have; allowed: " + known);
    return;
  }
  check_settings(values, *type, problems);
  const bool adam_w_mode = values.get<bool>("optimizer.params.adam_w_mode");
  if (type->title == "AdamW" && !adam_w_mode) {
    values.warn("optimizer.params.adam_w_mode: false has no effect on AdamW; Adam would take it");
  }
  const bool is_adamw = type->title == "Adam" && adam_w_mode;
  config.optimizer_title = is_adamw ? "AdamW" : std::string(type->title);
  read_settings(values, *type, config);
}

}  // namespace zoffload
