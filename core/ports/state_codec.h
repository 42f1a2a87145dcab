// Optimizer state between the formats in which it is stored and fp32: what turns a state that a
// user loads into a stored one, and back. Pure functions over spans with the same bits on every
// instruction set; the kernels of the update read and write the same formats.
#pragma once

#include <cstdint>
#include <span>

#include "core/ports/optimizer.h"

namespace zoffload {

class StateCodec {
 public:
  virtual ~StateCodec() = default;

  // Exact for fp32 and bf16; code times scale for int8, where exp_avg_sq's codes are of its root.
  virtual void decode(Moment moment, MomentFormat format, const MomentView& from,
                      std::span<float> to) const = 0;

  // Rounds to nearest: what decode() gave comes back as the same values. In int8 an exp_avg_sq
  // above zero never becomes zero.
  virtual void encode(Moment moment, MomentFormat format, std::span<const float> from,
                      const MomentView& to) const = 0;

  // The fp32 master of a bf16 weight and its residual, and back. split() rounds half up in
  // magnitude, which is what makes join() exact: hi = (bits + 0x8000) >> 16, lo = bits & 0xffff,
  // and back, bits = (hi - (lo >> 15)) << 16 | lo. REQUIRES: each NaN is the canonical one.
  virtual void join(std::span<const uint16_t> param, std::span<const uint16_t> residual,
                    std::span<float> master) const = 0;
  virtual void split(std::span<const float> master, std::span<uint16_t> param,
                     std::span<uint16_t> residual) const = 0;
};

}  // namespace zoffload
