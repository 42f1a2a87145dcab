// A subgroup's memory seen as the pieces of parameters that lie in it: the spans that the optimizer
// steps and that state is read from and written to, in whatever format the bucket stores it.
#pragma once

#include <cstdint>

#include "core/engine/update_buffer.h"
#include "core/plan/layout.h"
#include "core/ports/optimizer.h"

namespace zoffload {

// Elements [begin, begin + numel) of an array.
HostSpan part(HostSpan bytes, uint64_t begin, uint64_t numel, DType dtype);

// The spans point into the buffer's memory as it is when a view is asked for, and for what lies in
// place, into the user's.
class UpdateViews {
 public:
  UpdateViews(const Layout& layout, SubgroupId subgroup, const UpdateBuffer& buffer);

  // A piece, all but its gradient. `param` is empty for fp32 models, whose master it is.
  UpdateView of(const Segment& segment) const;
  // Everything, padding included. REQUIRES: not in place.
  UpdateView whole() const;

 private:
  UpdateView cut(uint64_t begin, uint64_t numel, HostSpan weights) const;
  MomentView moment(Role role, uint64_t begin, uint64_t numel) const;

  const Layout& layout_;
  const SubgroupLayout& subgroup_;
  const BucketLayout& bucket_;
  const UpdateBuffer& buffer_;
};

}  // namespace zoffload
