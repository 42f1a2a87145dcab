// Adam and AdamW in one pass with the widest vectors of this CPU. Bit for bit ScalarAdam.
#pragma once

#include "optim/adam.h"

namespace zoffload {

class HighwayAdam final : public Adam {
 public:
  using Adam::Adam;

 private:
  void do_update(const UpdateView& view, const AdamScalars& scalars) const override;
};

}  // namespace zoffload
