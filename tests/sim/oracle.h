// The same training in one process with no tiers, no ranks and no engine: what every placement,
// order and world must end with, bit for bit. Plain loops over the scalar kernels; kept short
// enough to be believed.
#pragma once

#include <vector>

#include "tests/sim/toy_model.h"

namespace zoffload::sim_test {

// Per bucket, the bytes of the whole bucket at the end.
std::vector<std::vector<std::byte>> train_plainly(const Scenario& scenario);

}  // namespace zoffload::sim_test
