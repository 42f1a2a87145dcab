// What memory alone allows: kernels that read and write the same streams of bytes as the work they
// stand beside, and compute next to nothing.
#pragma once

#include <cstdint>

#include "bench/run_jobs.h"
#include "bench/samples.h"
#include "core/ports/optimizer.h"

namespace zoffload::bench {

// Reads and writes all that an update of `view` reads and writes, in one pass over its elements.
// The master and the moments keep their bits; `param`, which an update only writes, gets the upper
// half of the master.
void stream_like_update(const UpdateView& view);

// The bytes of those streams for one element, reads and writes added up: 28 for both dtypes.
uint64_t update_stream_bytes(DType dtype);

// A copy of `bytes` on `workers`, a sample per repeat: bytes read and bytes written per second.
zoffload::Result<Samples> measure_memory_copy(uint64_t bytes, uint32_t repeats, Workers& workers,
                                              const Stopped& stopped = {});

}  // namespace zoffload::bench
