#include "core/base/noise.h"

namespace zoffload {

// splitmix64.
void fill_with_noise(HostSpan memory, uint64_t seed) {
  uint64_t state = seed;
  for (uint64_t& word : elements<uint64_t>(memory)) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    word = z ^ (z >> 31);
  }
}

}  // namespace zoffload
