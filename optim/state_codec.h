// The two implementations of StateCodec: the vectorised one, and the oracle one element at a time.
// Bit for bit equal. The formats and their errors: int8 in int8_block.h; bf16 rounds to nearest,
// ties to even, with a canonical NaN; fp32 is copied.
#pragma once

#include "core/ports/state_codec.h"

namespace zoffload {

class HighwayStateCodec final : public StateCodec {
 public:
  void decode(Moment moment, MomentFormat format, const MomentView& from,
              std::span<float> to) const override;
  void encode(Moment moment, MomentFormat format, std::span<const float> from,
              const MomentView& to) const override;
  void join(std::span<const uint16_t> param, std::span<const uint16_t> residual,
            std::span<float> master) const override;
  void split(std::span<const float> master, std::span<uint16_t> param,
             std::span<uint16_t> residual) const override;
};

class ScalarStateCodec final : public StateCodec {
 public:
  void decode(Moment moment, MomentFormat format, const MomentView& from,
              std::span<float> to) const override;
  void encode(Moment moment, MomentFormat format, std::span<const float> from,
              const MomentView& to) const override;
  void join(std::span<const uint16_t> param, std::span<const uint16_t> residual,
            std::span<float> master) const override;
  void split(std::span<const float> master, std::span<uint16_t> param,
             std::span<uint16_t> residual) const override;
};

}  // namespace zoffload
