// The random bits of stochastic rounding: a pure function of the parameter's seed, the step and the
// element's index, so that a result depends neither on threads nor on tiers nor on cuts. The key of
// a tile of elements is mixed well; each element then costs one mix of 32 bits, whose lower half
// rounds exp_avg and whose upper half exp_avg_sq.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zoffload {

// Elements that are worked on together: their fp32 arrays and what they are stored as fit into the
// first cache twice. Tiles start at multiples of it within a parameter.
inline constexpr size_t kTileNumel = 256;

constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline constexpr uint32_t kMixFactor1 = 0x7feb352du;
inline constexpr uint32_t kMixFactor2 = 0x846ca68bu;

constexpr uint32_t mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * kMixFactor1;
  x = (x ^ (x >> 15)) * kMixFactor2;
  return x ^ (x >> 16);
}

// Of the tile in which element `index` lies.
constexpr uint32_t tile_key(uint64_t seed, uint64_t step, uint64_t index) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const uint64_t of_step = mix64(mix64(seed + kGolden) + step * kGolden);
  return static_cast<uint32_t>(mix64(of_step + (index / kTileNumel) * kGolden) >> 32);
}

constexpr uint32_t random_bits(uint32_t key, uint64_t index) {
  return mix32(key + static_cast<uint32_t>(index % kTileNumel));
}

}  // namespace zoffload
