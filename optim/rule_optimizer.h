// Any rule as an Optimizer, in every state format: the vectorised one, tile by tile through fp32
// arrays that stay in the first cache, and the oracle, one element at a time. Bit for bit equal.
//
// Of one element: the gradient is converted and multiplied by grad_scale; weight and moments are
// decoded, stepped, each NaN made the canonical one, and encoded. A bf16 weight beside an fp32
// master is rounded to nearest; a split one half up in magnitude, which is lossless. Moments in
// bf16 and int8 are rounded stochastically, up or down to a neighbour and right on average, with
// the bits of stochastic_rounding.h. Errors:
//   bf16  less than 2^-7 of a normal value, and the mean is exact. What is above the largest bf16
//         may become Inf.
//   int8  as int8_block.h states; the mean is off by less than 2^-13 of a code. Of exp_avg_sq that
//         is its root: the mean of exp_avg_sq itself is larger by up to scale^2 / 4, and a value
//         whose root is below the scale is lifted to it.
#pragma once

#include <string_view>

#include "optim/rule.h"

namespace zoffload {

// Weights in bf16 that are only written go past the caches where a piece has at least this many
// bytes of them: a line written whole need not be read. A smaller piece may still be in the cache
// when it is copied to the accelerator.
inline constexpr size_t kStreamedBytesMin = size_t{64} << 10;

class RuleOptimizer : public Optimizer {
 public:
  // `name` is a literal: it is kept, not copied.
  RuleOptimizer(std::string_view name, const OptimizerRule& rule) : name_(name), rule_(rule) {}

  std::string_view name() const final { return name_; }
  MomentSet moments() const final { return rule_.moments; }
  void update(const UpdateView& view, const Hyper& hyper, float grad_scale,
              uint64_t step) const final;

 protected:
  struct Call {
    RuleConstants constants;
    float grad_scale;
    uint64_t step;
  };
  const OptimizerRule& rule() const { return rule_; }

 private:
  virtual void do_update(const UpdateView& view, const Call& call) const = 0;

  const std::string_view name_;
  const OptimizerRule rule_;
};

class TiledOptimizer final : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;

 private:
  void do_update(const UpdateView& view, const Call& call) const override;
};

class ScalarOptimizer final : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;

 private:
  void do_update(const UpdateView& view, const Call& call) const override;
};

}  // namespace zoffload
