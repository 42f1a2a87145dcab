// The table of optimizers, by name. Adding one is the file of its rule (adam.cc is the model), a
// row in optimizers.cc, and nothing else: formats are no business of a rule, and the conformance
// suite runs over the table. "scalar_x" is the oracle of "x".
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ports/optimizer.h"

namespace zoffload {

std::vector<std::string_view> optimizer_names();

// kInvalidArgument, with the names that exist, for any other.
Result<std::unique_ptr<Optimizer>> make_optimizer(std::string_view name);

}  // namespace zoffload
