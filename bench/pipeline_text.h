// What `pipeline` prints of one engine.
#pragma once

#include <string>
#include <vector>

#include "bench/result.h"

namespace zoffload::bench {

// Its step, and what bounds it, which are among `results` too.
std::string pipeline_text(const bench::Result& result, const std::vector<bench::Result>& results);

}  // namespace zoffload::bench
