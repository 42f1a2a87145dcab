// Collectives in turn. Transfers finish in any order, collectives start in one: turns are dealt in
// program order, which is equal on every rank, and a collective is submitted only when all earlier
// turns were.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/engine/failure.h"
#include "core/engine/operation.h"
#include "core/ports/communicator.h"

namespace zoffload {

class Collectives {
 public:
  Collectives(Communicator& communicator, const Failure& failure)
      : communicator_(communicator), failure_(failure) {}

  Turn take_turn() { return dealt_++; }  // in program order

  // A world of one has nothing to exchange: in-place collectives are done before they start.
  Task<Status> all_gather(Turn turn, DeviceSpan own, DeviceSpan all);
  Task<Status> reduce_scatter_mean(Turn turn, DeviceSpan all, DeviceSpan own, DType dtype);
  Task<Status> all_reduce_sum(Turn turn, std::span<double> values);

 private:
  auto my_turn(Turn turn) const {
    return Until(
        failure_, [this, turn] { return current_ == turn; }, "turn", turn,
        WaitFor::leaf(Cause::kTurn));
  }
  bool alone() const { return communicator_.world_size() == 1; }

  Communicator& communicator_;
  const Failure& failure_;
  Turn dealt_ = 0;    // turns given out
  Turn current_ = 0;  // the turn that may start next
};

}  // namespace zoffload
