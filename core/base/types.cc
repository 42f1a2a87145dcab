#include "core/base/types.h"

namespace zoffload {

const char* dtype_name(DType dtype) { return dtype == DType::kFloat32 ? "fp32" : "bf16"; }

const char* role_name(Role role) {
  switch (role) {
    case Role::kGrad: return "grad";
    case Role::kParam: return "param";
    case Role::kMaster: return "master";
    case Role::kExpAvg: return "exp_avg";
    case Role::kExpAvgSq: return "exp_avg_sq";
  }
  return "unknown";
}

const char* tier_name(TierKind tier) {
  switch (tier) {
    case TierKind::kHbm: return "hbm";
    case TierKind::kHost: return "host";
    case TierKind::kNvme: return "nvme";
    case TierKind::kInPlace: return "in place";
  }
  return "unknown";
}

}  // namespace zoffload
