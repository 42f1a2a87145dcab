// What memory alone allows: kernels that read and write the same streams of bytes as the work they
// stand beside, and compute next to nothing.
#pragma once

#include <cstdint>

#include "bench/run_jobs.h"
#include "bench/samples.h"
#include "core/ports/optimizer.h"

namespace zoffload::bench {

// Reads and writes all that an update of `view` reads and writes, in one pass over its elements, in
// whatever format. The state keeps its bits; weights that an update only writes become zero, past
// the cache where the update goes past it.
void stream_like_update(const UpdateView& view);

// Reads what the norm of the gradient reads.
void read_like_norm(const UpdateView& view);

// The bytes of the update's streams for an element, reads and writes added up: 28 for fp32 state of
// Adam, whatever the weights are.
double update_stream_bytes(DType dtype, StateFormat format, MomentSet moments);

// A copy of `bytes` on `workers`, a sample per repeat: bytes read and bytes written per second.
zoffload::Result<Samples> measure_memory_copy(uint64_t bytes, uint32_t repeats, Workers& workers,
                                              const Stopped& stopped = {});

}  // namespace zoffload::bench
