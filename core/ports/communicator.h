// Collectives among the ranks. Every rank brings the same sequence of turns, kinds and sizes;
// implementations that can, check it. A call starts the operation on this rank; it is done when
// every rank brought its part.
//
// Used from the control thread of each rank.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/span.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/ports/completion.h"

namespace zoffload {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const char* name() const = 0;
  virtual uint32_t rank() const = 0;
  virtual uint32_t world_size() const = 0;

  // Fills `all` with every rank's `own`, in rank order. In place: `own` is all.subspan(rank *
  // own.bytes()).
  virtual void all_gather(Turn turn, DeviceSpan own, DeviceSpan all, Completion& completion) = 0;

  // Leaves in `own` this rank's part of the mean over ranks of `all`: summed in fp32 in rank order,
  // divided by the world size, rounded once. In place: `own` is all.subspan(rank * own.bytes());
  // the rest of `all` is garbage after.
  virtual void reduce_scatter_mean(Turn turn, DeviceSpan all, DeviceSpan own, DType dtype,
                                   Completion& completion) = 0;

  // Replaces each value by its sum over the ranks, added in rank order. `values` is host memory and
  // stays alive.
  virtual void all_reduce_sum(Turn turn, std::span<double> values, Completion& completion) = 0;

  // Ends every collective in flight and to come, here and on the peers, with kCommError and this
  // reason.
  virtual void abort(const Status& reason) = 0;

  virtual uint32_t poll() = 0;  // delivers what has finished; returns the number delivered
};

}  // namespace zoffload
