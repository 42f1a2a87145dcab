#include "optim/simd_targets.h"

#include "core/base/check.h"
#include "optim/simd_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/simd_targets.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace zoffload {
namespace HWY_NAMESPACE {

const char* own_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace zoffload
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zoffload {
namespace {

using Targets = decltype(hwy::SupportedTargets());  // a bit per target, the best lowest

// The static target is always there, even where the Highway library was built with another fallback
// than we were.
Targets usable_targets() { return (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET; }

Targets lowest(Targets targets) { return targets & ~(targets - 1); }

}  // namespace

HWY_EXPORT(own_name);

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (Targets rest = usable_targets(); rest != 0; rest &= rest - 1) {
    names.emplace_back(hwy::TargetName(lowest(rest)));
  }
  return names;
}

std::string simd_target_in_use() { return HWY_DYNAMIC_DISPATCH(own_name)(); }

ForcedSimdTarget::ForcedSimdTarget(std::string_view target) {
  Targets rest = usable_targets();
  while (rest != 0 && hwy::TargetName(lowest(rest)) != target) rest &= rest - 1;
  ZO_CHECK(rest != 0);
  hwy::SetSupportedTargetsForTest(lowest(rest));
}

ForcedSimdTarget::~ForcedSimdTarget() { hwy::SetSupportedTargetsForTest(0); }

}  // namespace zoffload
#endif  // HWY_ONCE
