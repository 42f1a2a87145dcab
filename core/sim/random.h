// A small seeded generator (splitmix64): the only source of chance in a simulation. The same seed
// gives the same numbers on every machine, which std:: distributions do not promise.
#pragma once

#include <cstdint>

#include "core/base/check.h"

namespace zoffload {

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed), state_(seed) {}

  uint64_t next() {
    state_ += kIncrement;
    return mix(state_);
  }

  // A number below n. The bias of the modulo is below n / 2^64. REQUIRES: n > 0.
  uint64_t below(uint64_t n) {
    ZO_CHECK(n > 0);
    return next() % n;
  }

  // True with this probability. Draws even when that is 0, so that turning one fault off leaves the
  // others where they were.
  bool chance(double probability) {
    const double uniform = static_cast<double>(next() >> 11) * 0x1.0p-53;  // in [0, 1)
    return uniform < probability;
  }

  // An independent generator for one part of the simulation. It depends on the seed and the tag
  // only, not on how many numbers were drawn, so that parts do not disturb each other.
  Random fork(uint64_t tag) const { return Random(mix(seed_ ^ mix(tag + kIncrement))); }

 private:
  static constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15u;

  static constexpr uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t seed_;
  uint64_t state_;
};

}  // namespace zoffload
