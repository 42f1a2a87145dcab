// The data plane: what CPU workers do to the spans they are given. Plain loops over segments; the
// arithmetic is in the Optimizer and GradientMath ports.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/layout.h"
#include "core/ports/gradient_math.h"
#include "core/ports/optimizer.h"
#include "core/ports/workers.h"

namespace zoffload {

// Adds one reduced piece of a bucket's gradients to its home and measures the home.
class GradientJob : public Job {
 public:
  struct Piece {
    ConstHostSpan from;  // empty: nothing to add (measure only)
    HostSpan home;       // in the gradient home, or the user's gradient (level 1)
    uint64_t begin = 0;  // in elements from the start of the subgroup
    bool first = false;  // of this step: assign, do not add
  };

  GradientJob(const GradientMath& math, DType from_dtype, DType home_dtype,
              std::vector<double>& chunk_sums)
      : math_(math), from_dtype_(from_dtype), home_dtype_(home_dtype), chunk_sums_(chunk_sums) {}

  void add(const Piece& piece) { pieces_.push_back(piece); }
  bool empty() const { return pieces_.empty(); }
  void run() override;

 private:
  void measure(const Piece& piece);

  const GradientMath& math_;
  const DType from_dtype_;
  const DType home_dtype_;
  std::vector<double>& chunk_sums_;  // of the subgroup; replaced
  std::vector<Piece> pieces_;        // in order
};

// Steps the active segments of one subgroup.
class UpdateJob : public Job {
 public:
  struct Piece {
    UpdateView view;
    Hyper hyper;
    uint64_t number = 0;  // of this parameter's update
  };

  UpdateJob(const Optimizer& optimizer, float grad_scale)
      : optimizer_(optimizer), grad_scale_(grad_scale) {}

  void add(const Piece& piece) { pieces_.push_back(piece); }

  // `param` holds garbage where no segment steps (it was not loaded): round it from the master
  // first.
  void refresh(const GradientMath& math, HostSpan master, HostSpan param) {
    math_ = &math;
    master_ = master;
    param_ = param;
  }
  void run() override;

 private:
  const Optimizer& optimizer_;
  const float grad_scale_;
  const GradientMath* math_ = nullptr;
  HostSpan master_;
  HostSpan param_;
  std::vector<Piece> pieces_;
};

}  // namespace zoffload
