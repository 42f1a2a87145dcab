// The "optimizer" block of a config: which optimizer, and its settings with the defaults that
// DeepSpeed gives it.
#pragma once

#include "core/plan/config.h"
#include "core/plan/config_values.h"

namespace zoffload {

void read_optimizer(ConfigValues& values, Config& config, Problems& problems);

}  // namespace zoffload
