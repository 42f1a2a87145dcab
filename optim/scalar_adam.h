// Adam and AdamW one element at a time: oracle and documentation of the vectorised kernels.
#pragma once

#include "optim/adam.h"

namespace zoffload {

class ScalarAdam final : public Adam {
 public:
  using Adam::Adam;

 private:
  void do_update(const UpdateView& view, const AdamScalars& scalars) const override;
};

}  // namespace zoffload
