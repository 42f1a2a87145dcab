// In which order a step updates its subgroups: that in which the next forward needs them. Pure.
#pragma once

#include <vector>

#include "core/plan/layout.h"

namespace zoffload {

// All subgroups of this rank. First those that hold a parameter of `params`, by the first that they
// hold; then the rest, by `buckets`. Both lists may leave out what nobody knows the place of: it
// comes last, in the layout's order.
std::vector<SubgroupId> update_order(const Layout& layout, const std::vector<BucketId>& buckets,
                                     const std::vector<ParamId>& params);

// The subgroups of this rank that hold a piece of the parameter, in order.
std::vector<SubgroupId> subgroups_of(const Layout& layout, ParamId param);

}  // namespace zoffload
