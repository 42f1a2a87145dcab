// An optimizer's arithmetic, free of how its state is stored: what the file of an optimizer gives,
// once for one element and once for the fp32 arrays of a tile. rule_optimizer.h does the rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/ports/optimizer.h"

namespace zoffload {

// The constants of one call, in a struct of the rule's own. Derived in double and rounded to float
// once: oracle and kernel start from the same bits.
class RuleConstants {
 public:
  template <class T>
  explicit RuleConstants(const T& constants) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof bytes_);
    std::memcpy(bytes_.data(), &constants, sizeof constants);
  }
  template <class T>
  T as() const {
    T constants;
    std::memcpy(&constants, bytes_.data(), sizeof constants);
    return constants;
  }

 private:
  alignas(8) std::array<std::byte, 64> bytes_{};
};

struct RuleElement {
  float weight;
  float exp_avg;  // 0 where the optimizer does not keep it
  float exp_avg_sq;
};

// Arrays of `numel` elements, in and out but for the gradient.
struct RuleTile {
  float* weight;
  float* exp_avg;  // null where the optimizer does not keep it
  float* exp_avg_sq;
  ConstHostSpan grad;
  DType grad_dtype;
  float grad_scale;  // that the gradient is multiplied by first
  size_t numel;
};

struct OptimizerRule {
  MomentSet moments;
  RuleConstants (*constants)(const Hyper& hyper, uint64_t step);
  // Documentation and oracle. The gradient is scaled already, NaNs are made canonical afterwards.
  void (*step_element)(const RuleConstants& constants, RuleElement& element, float grad);
  // Bit for bit the same, through rule-inl.h.
  void (*step_tile)(const RuleConstants& constants, const RuleTile& tile);
};

}  // namespace zoffload
