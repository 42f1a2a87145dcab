#include "core/engine/update_views.h"

namespace zoffload {

HostSpan part(HostSpan bytes, uint64_t begin, uint64_t numel, DType dtype) {
  return bytes.subspan(begin * dtype_bytes(dtype), numel * dtype_bytes(dtype));
}

UpdateViews::UpdateViews(const Layout& layout, SubgroupId subgroup, const UpdateBuffer& buffer)
    : layout_(layout),
      subgroup_(layout.subgroups[subgroup]),
      bucket_(layout.buckets[subgroup_.bucket]),
      buffer_(buffer) {}

UpdateView UpdateViews::of(const Segment& segment) const {
  const ParamLayout& param = layout_.params[segment.param];
  const HostSpan weights =
      bucket_.in_place
          ? part(param.in_place, segment.begin_in_param, segment.numel, bucket_.dtype)
          : part(buffer_.bytes(Role::kParam), segment.begin, segment.numel, bucket_.dtype);
  UpdateView view = cut(segment.begin, segment.numel, weights);
  view.seed = param.seed;
  view.first = segment.begin_in_param;
  return view;
}

UpdateView UpdateViews::whole() const {
  ZO_CHECK(!bucket_.in_place);
  return cut(0, subgroup_.numel,
             part(buffer_.bytes(Role::kParam), 0, subgroup_.numel, bucket_.dtype));
}

UpdateView UpdateViews::cut(uint64_t begin, uint64_t numel, HostSpan weights) const {
  UpdateView view;
  if (bucket_.dtype == DType::kFloat32) {
    view.master = elements<float>(weights);
  } else {
    view.param = elements<uint16_t>(weights);
  }
  const HostSpan master = buffer_.bytes(Role::kMaster);
  if (bucket_.split()) {
    view.residual = elements<uint16_t>(part(master, begin, numel, DType::kBFloat16));
  } else if (bucket_.has_master()) {
    view.master = elements<float>(part(master, begin, numel, DType::kFloat32));
  }
  view.moments = bucket_.format.moments;
  view.exp_avg = moment(Role::kExpAvg, begin, numel);
  view.exp_avg_sq = moment(Role::kExpAvgSq, begin, numel);
  return view;
}

// In int8, the codes of the whole subgroup come first, then the scale of each block.
MomentView UpdateViews::moment(Role role, uint64_t begin, uint64_t numel) const {
  const HostSpan bytes = buffer_.bytes(role);
  if (bytes.empty()) return {};  // the optimizer does not keep it
  switch (bucket_.format.moments) {
    case MomentFormat::kFloat32:
      return MomentView(elements<float>(part(bytes, begin, numel, DType::kFloat32)));
    case MomentFormat::kBFloat16: return {part(bytes, begin, numel, DType::kBFloat16), {}};
    case MomentFormat::kInt8: break;
  }
  ZO_CHECK(begin % kMomentBlock == 0);
  const HostSpan scales = bytes.subspan(subgroup_.numel + begin / kMomentBlock * sizeof(float),
                                        ceil_div(numel, kMomentBlock) * sizeof(float));
  return {bytes.subspan(begin, numel), elements<float>(scales)};
}

}  // namespace zoffload
