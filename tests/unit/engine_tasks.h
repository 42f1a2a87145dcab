// What users of an EngineRig do in more than one test: small models, and tasks that train them.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/engine_rig.h"

namespace zoffload {

inline constexpr Placement kHbm{1, 0, 0};
inline constexpr Placement kHost{0, 1, 0};
inline constexpr Placement kNvme{0, 0, 1};

// `count` buckets, each of a parameter that reaches over two subgroups and a small one behind it.
inline RigOptions options_for(uint32_t count, DType dtype, Placement params, Placement optimizer) {
  RigOptions options;
  for (uint32_t b = 0; b < count; ++b) {
    BucketSpec bucket;
    bucket.name = "block" + std::to_string(b);
    bucket.dtype = dtype;
    bucket.params = {{"w", kNormChunk + 100, 0, {}}, {"b", 50, 0, {}}};
    options.model.push_back(bucket);
  }
  options.plan.params = params;
  options.plan.optimizer = optimizer;
  options.plan.subgroup_bytes = kNormChunk * 12;
  return options;
}

// Holds a bucket, sets every weight of it, makes that the truth and lets go.
inline Task<Status> initialise(RigRank& rank, BucketId bucket, float value) {
  Status status = co_await rank.hold(bucket);
  ZO_CO_TRY(status);
  const BucketLayout& layout = rank.layout().buckets[bucket];
  for (ParamId p = layout.first_param; p < layout.first_param + layout.param_count; ++p) {
    if (layout.dtype == DType::kFloat32) {
      for (float& weight : rank.values<float>(p)) weight = value;
    } else {
      for (uint16_t& weight : rank.values<uint16_t>(p)) weight = bf16_from_float(value);
    }
  }
  status = co_await rank.engine().write_back(bucket);
  ZO_CO_TRY(status);
  co_return rank.let_go(bucket);
}

template <typename T>
Task<Status> copy_param(RigRank& rank, ParamId param, std::vector<T>& to) {
  const BucketId bucket = rank.layout().params[param].bucket;
  Status status = co_await rank.hold(bucket);
  ZO_CO_TRY(status);
  const std::span<T> values = rank.values<T>(param);
  to.assign(values.begin(), values.end());
  co_return rank.let_go(bucket);
}

inline Task<Status> step_with(RigRank& rank, float gradient, std::vector<ParamId> params,
                              StepReport& report) {
  Status status = co_await rank.give(0, gradient, params);
  ZO_CO_TRY(status);
  status = co_await rank.step(0, report);
  ZO_CO_TRY(status);
  status = co_await rank.engine().settle();
  co_return status;
}

template <typename T>
HostSpan bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace zoffload
