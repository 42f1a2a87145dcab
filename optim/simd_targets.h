// The instruction sets that the kernels can use on this CPU. The best one is chosen at run time; a
// test forces each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zoffload {

// Built in and supported here, best first: "AVX3", "AVX2", "NEON", "EMU128", "SCALAR". Never empty.
std::vector<std::string> simd_targets();

// The one that a kernel called now runs on.
std::string simd_target_in_use();

// Makes every kernel of this process use one target for as long as it lives. For tests, one at a
// time, with no kernel running meanwhile: the choice is Highway's, and process-wide. REQUIRES:
// `target` is one of simd_targets().
class ForcedSimdTarget {
 public:
  explicit ForcedSimdTarget(std::string_view target);
  ~ForcedSimdTarget();
  ForcedSimdTarget(const ForcedSimdTarget&) = delete;
  ForcedSimdTarget& operator=(const ForcedSimdTarget&) = delete;
};

}  // namespace zoffload
