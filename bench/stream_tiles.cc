#include "bench/stream_tiles.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>

#include "optim/simd_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/stream_tiles.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace zoffload::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<uint8_t>;
using Vector = hn::Vec<Bytes>;

HWY_INLINE void rewrite(uint8_t* at, size_t count, Vector change) {
  const Bytes d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= count; i += step) {
    hn::StoreU(hn::Xor(hn::LoadU(d, at + i), change), d, at + i);
  }
  const uint8_t last = hn::GetLane(change);
  for (; i < count; ++i) at[i] ^= last;
}

HWY_INLINE Vector read(const uint8_t* at, size_t count, Vector seen) {
  const Bytes d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= count; i += step) seen = hn::Or(seen, hn::LoadU(d, at + i));
  for (; i < count; ++i) seen = hn::Or(seen, hn::Set(d, at[i]));
  return seen;
}

HWY_INLINE void write(uint8_t* at, size_t count, Vector value, bool past_cache) {
  const Bytes d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  if (past_cache && reinterpret_cast<uintptr_t>(at) % kPastCacheAlignment == 0) {
    for (; i + step <= count; i += step) hn::Stream(value, d, at + i);
  } else {
    for (; i + step <= count; i += step) hn::StoreU(value, d, at + i);
  }
  if (i < count) std::memset(at + i, hn::GetLane(value), count - i);
}

// `mask` is zero, which the compiler does not know: what is read has to be read.
void pass_over_all(const StreamSet& streams, uint8_t mask) {
  const Bytes d;
  const auto none = hn::Set(d, mask);
  for (size_t tile = 0; tile < streams.tiles; ++tile) {
    const bool last = tile + 1 == streams.tiles;
    const auto count_of = [tile, last](size_t all, size_t tile_bytes) {
      return last ? all - tile * tile_bytes : tile_bytes;
    };
    const auto* from = reinterpret_cast<const uint8_t*>(streams.read.data());
    const size_t read_begin = tile * streams.read_tile_bytes;
    const size_t read_count = count_of(streams.read.size(), streams.read_tile_bytes);
    const Vector change = hn::And(read(from + read_begin, read_count, none), none);
    for (const Stream& stream : streams.rewritten) {
      auto* at = reinterpret_cast<uint8_t*>(stream.bytes.data());
      rewrite(at + tile * stream.tile_bytes, count_of(stream.bytes.size(), stream.tile_bytes),
              change);
    }
    const Stream& to = streams.written;
    if (to.bytes.empty()) continue;
    write(reinterpret_cast<uint8_t*>(to.bytes.data()) + tile * to.tile_bytes,
          count_of(to.bytes.size(), to.tile_bytes), change, streams.past_cache);
  }
}

uint8_t read_all(const uint8_t* at, size_t count, uint8_t mask) {
  const Bytes d;
  const auto none = hn::Set(d, mask);
  return hn::GetLane(hn::And(read(at, count, none), none));
}

}  // namespace HWY_NAMESPACE
}  // namespace zoffload::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zoffload::bench {
namespace {

HWY_EXPORT(pass_over_all);
HWY_EXPORT(read_all);

volatile uint8_t no_bits = 0;

}  // namespace

void pass_over(const StreamSet& streams) {
  HWY_DYNAMIC_DISPATCH(pass_over_all)(streams, no_bits);
  if (streams.past_cache) hwy::FlushStream();
}

void pass_over(ConstHostSpan bytes) {
  volatile uint8_t seen = HWY_DYNAMIC_DISPATCH(read_all)(
      reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), no_bits);
  static_cast<void>(seen);
}

}  // namespace zoffload::bench
#endif  // HWY_ONCE
