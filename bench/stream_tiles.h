// Passes over tiles of several streams of memory with the widest vectors of this CPU: what the
// memory bound's kernel is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/span.h"

namespace zoffload::bench {

// One array of an update, and how much of it a whole tile takes.
struct Stream {
  HostSpan bytes;
  size_t tile_bytes = 0;
};

struct StreamSet {
  ConstHostSpan read;
  size_t read_tile_bytes = 0;
  std::span<const Stream> rewritten;  // read, and written with the same bits
  Stream written;                     // with zeros, and never read
  bool past_cache = false;            // `written`, where it is aligned to kPastCacheAlignment
  size_t tiles = 0;                   // the last one takes what is left
};

inline constexpr size_t kPastCacheAlignment = 64;

// All tiles in order; of each, all streams.
void pass_over(const StreamSet& streams);

// Only reads.
void pass_over(ConstHostSpan bytes);

}  // namespace zoffload::bench
