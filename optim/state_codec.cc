#include "optim/state_codec.h"

#include <cstring>

#include "core/base/check.h"
#include "optim/moment_view.h"
#include "optim/tile_formats.h"

namespace zoffload {

void HighwayStateCodec::decode(Moment moment, MomentFormat format, const MomentView& from,
                               std::span<float> to) const {
  check_moment(from, format, to.size());
  if (to.empty()) return;  // memcpy wants addresses even for nothing
  if (format == MomentFormat::kFloat32) {
    std::memcpy(to.data(), from.values.data(), from.values.size());
  } else {
    tile_formats().decode(moment, format, from, 0, to.data(), to.size());
  }
}

void HighwayStateCodec::encode(Moment moment, MomentFormat format, std::span<const float> from,
                               const MomentView& to) const {
  check_moment(to, format, from.size());
  if (from.empty()) return;
  if (format == MomentFormat::kFloat32) {
    std::memcpy(to.values.data(), from.data(), to.values.size());
  } else {
    tile_formats().encode(moment, format, from.data(), nullptr, to, 0, from.size());
  }
}

void HighwayStateCodec::join(std::span<const uint16_t> param, std::span<const uint16_t> residual,
                             std::span<float> master) const {
  ZO_CHECK(param.size() == master.size());
  ZO_CHECK(residual.size() == master.size());
  tile_formats().join(param.data(), residual.data(), master.data(), master.size());
}

void HighwayStateCodec::split(std::span<const float> master, std::span<uint16_t> param,
                              std::span<uint16_t> residual) const {
  ZO_CHECK(param.size() == master.size());
  ZO_CHECK(residual.size() == master.size());
  tile_formats().split(master.data(), param.data(), residual.data(), master.size());
}

}  // namespace zoffload
