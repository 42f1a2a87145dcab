#include "core/engine/collectives.h"

namespace zoffload {

Task<Status> Collectives::all_gather(Turn turn, DeviceSpan own, DeviceSpan all) {
  if (alone()) co_return Status();
  Status mine = co_await my_turn(turn);
  ZO_CO_TRY(mine);
  Operation gathered("all-gather");
  communicator_.all_gather(turn, own, all, gathered);
  ++current_;
  Status status = co_await gathered;
  co_return status;
}

Task<Status> Collectives::reduce_scatter_mean(Turn turn, DeviceSpan all, DeviceSpan own,
                                              DType dtype) {
  if (alone()) co_return Status();
  Status mine = co_await my_turn(turn);
  ZO_CO_TRY(mine);
  Operation reduced("reduce-scatter");
  communicator_.reduce_scatter_mean(turn, all, own, dtype, reduced);
  ++current_;
  Status status = co_await reduced;
  co_return status;
}

Task<Status> Collectives::all_reduce_sum(Turn turn, std::span<double> values) {
  if (alone()) co_return Status();
  Status mine = co_await my_turn(turn);
  ZO_CO_TRY(mine);
  Operation reduced("all-reduce");
  communicator_.all_reduce_sum(turn, values, reduced);
  ++current_;
  Status status = co_await reduced;
  co_return status;
}

}  // namespace zoffload
