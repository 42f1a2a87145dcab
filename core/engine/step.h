// One optimizer step: what the user asked for, what the norm decided, and who takes part. It is
// fixed before the first update's arithmetic and read by all updates until the last has stored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/failure.h"
#include "core/ports/optimizer.h"

namespace zoffload {

struct StepOptions {
  std::vector<Hyper> hypers;   // by parameter group
  double max_grad_norm = 0;    // clip to this global norm; 0 does not clip
  bool skip_nonfinite = true;  // a NaN or Inf in any gradient skips the step whole
  double grad_scale = 1;       // gradients are multiplied by it before all else (unscaling)
};

struct StepReport {
  double grad_norm =
      0;  // global, after grad_scale, before clipping; NaN or Inf where a gradient is
  bool skipped = false;
  uint64_t updated_params = 0;  // that got a gradient
};

class Step {
 public:
  explicit Step(const Failure& failure) : failure_(failure) {}

  StepOptions options;
  StepReport report;
  float grad_scale = 1;            // unscale and clip in one factor
  std::vector<uint8_t> active;     // by param: it got a gradient
  std::vector<HostSpan> in_place;  // by param, level 1
  std::vector<uint64_t> numbers;   // by param: its update count, this one included

  void open() {
    known_ = false;
    ++step_count_;
  }
  void decide() { known_ = true; }

  // How many steps were opened: the number of the one that gradients are collected for.
  uint64_t count() const { return step_count_; }

  // Status status = co_await step.norm_known();
  auto norm_known() const {
    return Until(
        failure_, [this] { return known_; }, "the gradient norm of step", step_count_);
  }

 private:
  const Failure& failure_;
  bool known_ = true;
  uint64_t step_count_ = 0;
};

}  // namespace zoffload
