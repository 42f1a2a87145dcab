// Whether a view of a moment fits its elements.
#pragma once

#include "core/base/check.h"
#include "core/ports/optimizer.h"

namespace zoffload {

inline void check_moment(const MomentView& view, MomentFormat format, size_t numel) {
  if (format == MomentFormat::kInt8) {
    ZO_CHECK(view.values.size() == numel);
    ZO_CHECK(view.scales.size() == (numel + kMomentBlock - 1) / kMomentBlock);
  } else {
    ZO_CHECK(view.values.size() == moment_bytes(format, numel));
  }
}

}  // namespace zoffload
