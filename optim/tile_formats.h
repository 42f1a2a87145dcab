// Between the formats in which state is stored and the fp32 arrays of a tile, with the widest
// vectors of this CPU. Bit for bit scalar_formats.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ports/optimizer.h"

namespace zoffload {

// Plain functions of one instruction set, chosen once per update instead of once per tile. All are
// over `numel` elements. int8's arrays start at a block.
struct TileFormats {
  // The random bits of the elements from `index` on. REQUIRES: they are in one tile.
  void (*random)(uint32_t key, uint64_t index, uint32_t* to, size_t numel);

  void (*join)(const uint16_t* param, const uint16_t* residual, float* master, size_t numel);
  void (*split)(const float* master, uint16_t* param, uint16_t* residual, size_t numel);
  // The weights in bf16, to nearest. REQUIRES: each NaN is the canonical one.
  void (*narrow)(const float* master, uint16_t* param, size_t numel);
  // The same past the caches. REQUIRES: `param` is aligned to kStreamBytes, in whole vectors of
  // them; flush_streamed() before another thread may read it.
  void (*narrow_streamed)(const float* master, uint16_t* param, size_t numel);

  void (*decode_bf16)(const uint16_t* from, float* to, size_t numel);
  void (*decode_int8[2])(const uint8_t* codes, const float* scales, float* to, size_t numel);
  // Rounds to nearest where `random` is null; otherwise, REQUIRES: each NaN is the canonical one.
  // Indexed by Moment.
  void (*encode_bf16[2])(const float* from, const uint32_t* random, uint16_t* to, size_t numel);
  void (*encode_int8[2])(const float* from, const uint32_t* random, uint8_t* codes, float* scales,
                         size_t numel);

  // Of any format but fp32, from element i on.
  void decode(Moment moment, MomentFormat format, const MomentView& from, size_t i, float* to,
              size_t numel) const;
  void encode(Moment moment, MomentFormat format, const float* from, const uint32_t* random,
              const MomentView& to, size_t i, size_t numel) const;
};

inline constexpr size_t kStreamBytes = 64;
void flush_streamed();

// Of the instruction set in use.
const TileFormats& tile_formats();

}  // namespace zoffload
