#include <algorithm>

#include "core/base/check.h"
#include "optim/moment_view.h"
#include "optim/scalar_formats.h"
#include "optim/state_codec.h"

namespace zoffload {

void ScalarStateCodec::decode(Moment moment, MomentFormat format, const MomentView& from,
                              std::span<float> to) const {
  check_moment(from, format, to.size());
  for (size_t i = 0; i < to.size(); ++i) to[i] = decode_element(moment, format, from, i);
}

void ScalarStateCodec::encode(Moment moment, MomentFormat format, std::span<const float> from,
                              const MomentView& to) const {
  check_moment(to, format, from.size());
  for (size_t i = 0; i < from.size(); i += kMomentBlock) {
    const size_t numel = std::min<size_t>(kMomentBlock, from.size() - i);
    encode_elements(moment, format, from.data() + i, numel, {}, to, i);
  }
}

void ScalarStateCodec::join(std::span<const uint16_t> param, std::span<const uint16_t> residual,
                            std::span<float> master) const {
  ZO_CHECK(param.size() == master.size());
  ZO_CHECK(residual.size() == master.size());
  for (size_t i = 0; i < master.size(); ++i) master[i] = join_bits(param[i], residual[i]);
}

void ScalarStateCodec::split(std::span<const float> master, std::span<uint16_t> param,
                             std::span<uint16_t> residual) const {
  ZO_CHECK(param.size() == master.size());
  ZO_CHECK(residual.size() == master.size());
  for (size_t i = 0; i < master.size(); ++i) {
    const SplitBits halves = split_bits(master[i]);
    param[i] = halves.param;
    residual[i] = halves.residual;
  }
}

}  // namespace zoffload
