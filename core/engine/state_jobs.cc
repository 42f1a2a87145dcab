#include "core/engine/state_jobs.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace zoffload {

namespace {

// The weights in the model's type.
HostSpan weights_of(const UpdateView& state) {
  if (state.param.empty()) return std::as_writable_bytes(state.master);
  return std::as_writable_bytes(state.param);
}

// They may be the same memory: level 1 writes what lies in place.
void copy(ConstHostSpan from, HostSpan to) {
  ZO_CHECK(from.size() == to.size());
  std::memmove(to.data(), from.data(), to.size());
}

}  // namespace

void ReadStateJob::run() {
  switch (role_) {
    case Role::kParam: copy(weights_of(state_), to_); return;
    case Role::kMaster:
      if (state_.residual.empty()) {
        copy(std::as_bytes(state_.master), to_);
      } else {
        codec_.join(state_.param, state_.residual, elements<float>(to_));
      }
      return;
    case Role::kExpAvg:
      codec_.decode(Moment::kExpAvg, state_.moments, state_.exp_avg, elements<float>(to_));
      return;
    case Role::kExpAvgSq:
      codec_.decode(Moment::kExpAvgSq, state_.moments, state_.exp_avg_sq, elements<float>(to_));
      return;
    case Role::kGrad: break;
  }
  ZO_CHECK(role_ != Role::kGrad);
}

void WriteStateJob::run() {
  switch (role_) {
    case Role::kParam: write_param(); return;
    case Role::kMaster: write_master(); return;
    case Role::kExpAvg:
      codec_.encode(Moment::kExpAvg, state_.moments, elements<float>(from_), state_.exp_avg);
      return;
    case Role::kExpAvgSq:
      codec_.encode(Moment::kExpAvgSq, state_.moments, elements<float>(from_), state_.exp_avg_sq);
      return;
    case Role::kGrad: break;
  }
  ZO_CHECK(role_ != Role::kGrad);
}

void WriteStateJob::write_param() {
  copy(from_, weights_of(state_));
  if (!state_.residual.empty()) {
    std::fill(state_.residual.begin(), state_.residual.end(), uint16_t{0});
  } else if (!state_.param.empty() && !state_.master.empty()) {
    math_.assign(from_, DType::kBFloat16, std::as_writable_bytes(state_.master), DType::kFloat32);
  }
}

void WriteStateJob::write_master() {
  if (state_.residual.empty()) {
    copy(from_, std::as_writable_bytes(state_.master));
    if (state_.param.empty()) return;
    math_.assign(from_, DType::kFloat32, std::as_writable_bytes(state_.param), DType::kBFloat16);
    return;
  }
  // Only the canonical NaN splits into a weight that is one.
  const auto from = elements<float>(from_);
  float piece[1024];
  for (size_t at = 0; at < from.size();) {
    const size_t count = std::min(std::size(piece), from.size() - at);
    for (size_t i = 0; i < count; ++i) {
      const float value = from[at + i];
      piece[i] = value == value ? value : std::numeric_limits<float>::quiet_NaN();
    }
    codec_.split(std::span<const float>(piece, count), state_.param.subspan(at, count),
                 state_.residual.subspan(at, count));
    at += count;
  }
}

}  // namespace zoffload
