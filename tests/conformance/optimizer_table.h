// The optimizers that the conformance suites run over.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optim/optimizers.h"

namespace zoffload {

inline std::unique_ptr<Optimizer> must_make(std::string_view name) {
  auto made = make_optimizer(name);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(*made);
}

inline std::vector<std::string> vectorised_optimizers() {
  std::vector<std::string> names;
  for (std::string_view name : optimizer_names()) {
    if (!name.starts_with("scalar_")) names.emplace_back(name);
  }
  return names;
}

}  // namespace zoffload
