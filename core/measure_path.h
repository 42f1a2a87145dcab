// What a path can do, measured before its files are made: the depth that it needs and its speed
// with reads and writes mixed. Part of the composition root.
#pragma once

#include <cstdint>
#include <string>

#include "aio/file_queue.h"
#include "core/base/span.h"
#include "core/base/status.h"
#include "core/ports/clock.h"

namespace zoffload {

struct MeasuredPath {
  uint32_t depth = 0;
  double mixed_bytes_per_s = 0;
};

// Takes about a second: writes a file of 256 MiB without a name, then reads and writes it at
// growing depths, some 100 MiB at each. `scratch` is page-aligned, of at least two blocks. An error
// names the folder. kTimeout: nothing has moved for `stall_timeout_ns` (0: it waits for ever), and
// with requests left in the queue neither it nor the scratch may be freed: a drive may still own
// them.
Result<MeasuredPath> measure_path(FileQueue& queue, const std::string& folder, uint64_t block_bytes,
                                  HostSpan scratch, Clock& clock, uint64_t stall_timeout_ns);

}  // namespace zoffload
