#include "optim/optimizers.h"

#include <string>

#include "optim/highway_adam.h"
#include "optim/scalar_adam.h"

namespace zoffload {
namespace {

using Made = std::unique_ptr<Optimizer>;

struct Row {
  std::string_view name;
  Made (*make)(std::string_view name);
};

template <typename Kind, WeightDecay kDecay>
Made make(std::string_view name) {
  return std::make_unique<Kind>(name, kDecay);
}

constexpr Row kOptimizers[] = {
    {"adamw", make<HighwayAdam, WeightDecay::kDecoupled>},
    {"adam", make<HighwayAdam, WeightDecay::kL2>},
    {"scalar_adamw", make<ScalarAdam, WeightDecay::kDecoupled>},
    {"scalar_adam", make<ScalarAdam, WeightDecay::kL2>},
};

}  // namespace

std::vector<std::string_view> optimizer_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kOptimizers) names.push_back(row.name);
  return names;
}

Result<std::unique_ptr<Optimizer>> make_optimizer(std::string_view name) {
  std::string known;
  for (const Row& row : kOptimizers) {
    if (row.name == name) return row.make(row.name);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return Status(Code::kInvalidArgument,
                "optimizer '" + std::string(name) + "' is unknown; known are " + known);
}

}  // namespace zoffload
