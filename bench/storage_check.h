// What a path must be before a rig puts files on it.
#pragma once

#include <string>
#include <vector>

#include "aio/probe.h"
#include "bench/storage_rig.h"
#include "core/base/status.h"

namespace zoffload::bench {

// Each path's probe, if every path is a folder on a file system that fits the setup, with room for
// what the setup puts there and 10 % more. Paths on one file system need the room together.
zoffload::Result<std::vector<IoProbe>> check_paths(const StorageSetup& setup);

}  // namespace zoffload::bench
