// A model small enough to check by eye: its "loss" makes each gradient a function of the parameter
// itself, the step, the micro-step and the rank, so that any wrong, stale or misplaced number grows
// into a wrong end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bf16.h"
#include "core/plan/plan.h"
#include "core/ports/optimizer.h"

namespace zoffload::sim_test {

struct Scenario {
  uint64_t seed = 0;
  uint32_t world_size = 1;
  uint32_t step_count = 3;
  uint32_t micro_steps = 1;
  double max_grad_norm = 0;
  std::vector<BucketSpec> model;
  PlanRequest plan;
  bool faults = false;
  bool verify = true;          // checksums on load; off only for the canary
  uint32_t killed_rank = ~0u;  // dies at killed_at_ns, if it is a rank
  uint64_t killed_at_ns = 0;
  uint32_t nonfinite_step = ~0u;  // this step's gradients hold a NaN
};

inline float load_element(const std::byte* memory, uint64_t index, DType dtype) {
  if (dtype == DType::kFloat32) return reinterpret_cast<const float*>(memory)[index];
  return float_from_bf16(reinterpret_cast<const uint16_t*>(memory)[index]);
}

inline void store_element(std::byte* memory, uint64_t index, DType dtype, float value) {
  if (dtype == DType::kFloat32) {
    reinterpret_cast<float*>(memory)[index] = value;
  } else {
    reinterpret_cast<uint16_t*>(memory)[index] = bf16_from_float(value);
  }
}

// A number in [-1, 1) that depends on all of its arguments.
inline float noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
  uint64_t z = a;
  for (uint64_t x : {b, c, d, e}) {
    z = (z ^ x) * 0x9e3779b97f4a7c15u;
    z ^= z >> 29;
  }
  return static_cast<float>(static_cast<double>(z >> 40) * 0x1.0p-23 - 1.0);
}

inline float initial_weight(const Scenario& s, BucketId bucket, uint64_t index) {
  return 0.5f * noise(s.seed, 1, bucket, index, 7);
}

// The gradient of one element, before rounding to the bucket's dtype.
inline float gradient_of(const Scenario& s, BucketId bucket, uint64_t index, float weight,
                         uint32_t step, uint32_t micro, uint32_t rank) {
  if (step == s.nonfinite_step && index == 0) return __builtin_nanf("");
  return 0.25f * weight + noise(s.seed ^ rank, step, micro, bucket, index);
}

// Whether a parameter takes part in a micro-step: some are left out now and then, the same on every
// rank.
inline bool has_gradient(const Scenario& s, ParamId param, uint32_t step, uint32_t micro) {
  return noise(s.seed, step, micro, param, 99) < 0.8f;
}

inline std::vector<Hyper> hypers() {
  return {Hyper{1e-2, 0.9, 0.99, 1e-8, 0.1}, Hyper{3e-3, 0.8, 0.95, 1e-6, 0.0}};
}

}  // namespace zoffload::sim_test
