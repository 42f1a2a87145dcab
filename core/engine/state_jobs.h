// What CPU workers do when one role of a piece of a parameter moves between its stored form and the
// user's: weights in the model's type, all else in fp32.
#pragma once

#include "core/ports/gradient_math.h"
#include "core/ports/optimizer.h"
#include "core/ports/state_codec.h"
#include "core/ports/workers.h"

namespace zoffload {

class ReadStateJob final : public Job {
 public:
  ReadStateJob(const StateCodec& codec, Role role, const UpdateView& state, HostSpan to)
      : codec_(codec), role_(role), state_(state), to_(to) {}
  void run() override;

 private:
  const StateCodec& codec_;
  const Role role_;
  const UpdateView state_;
  const HostSpan to_;
};

// The weights and their master change together: what is written to one is the other's new value.
class WriteStateJob final : public Job {
 public:
  WriteStateJob(const StateCodec& codec, const GradientMath& math, Role role,
                const UpdateView& state, ConstHostSpan from)
      : codec_(codec), math_(math), role_(role), state_(state), from_(from) {}
  void run() override;

 private:
  void write_param();
  void write_master();

  const StateCodec& codec_;
  const GradientMath& math_;
  const Role role_;
  const UpdateView state_;
  const ConstHostSpan from_;
};

}  // namespace zoffload
