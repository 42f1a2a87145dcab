#include "optim/optimizers.h"

#include <string>

#include "optim/rule_optimizer.h"

namespace zoffload {

OptimizerRule adamw_rule();  // adam.cc
OptimizerRule adam_rule();
OptimizerRule sgd_rule();  // sgd.cc
OptimizerRule momentum_sgd_rule();
OptimizerRule lion_rule();     // lion.cc
OptimizerRule adagrad_rule();  // adagrad.cc

namespace {

struct Row {
  std::string_view name;
  std::string_view oracle;
  OptimizerRule (*rule)();
};

constexpr Row kOptimizers[] = {
    {"adamw", "scalar_adamw", adamw_rule},
    {"adam", "scalar_adam", adam_rule},
    {"sgd", "scalar_sgd", sgd_rule},
    {"momentum_sgd", "scalar_momentum_sgd", momentum_sgd_rule},
    {"lion", "scalar_lion", lion_rule},
    {"adagrad", "scalar_adagrad", adagrad_rule},
};

}  // namespace

std::vector<std::string_view> optimizer_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kOptimizers) names.push_back(row.name);
  for (const Row& row : kOptimizers) names.push_back(row.oracle);
  return names;
}

Result<std::unique_ptr<Optimizer>> make_optimizer(std::string_view name) {
  using Made = std::unique_ptr<Optimizer>;
  for (const Row& row : kOptimizers) {
    if (row.name == name) return Made(std::make_unique<TiledOptimizer>(row.name, row.rule()));
    if (row.oracle == name) return Made(std::make_unique<ScalarOptimizer>(row.oracle, row.rule()));
  }
  std::string known;
  for (std::string_view one : optimizer_names()) {
    known += (known.empty() ? "" : ", ") + std::string(one);
  }
  return Status(Code::kInvalidArgument,
                "optimizer '" + std::string(name) + "' is unknown; known are " + known);
}

}  // namespace zoffload
