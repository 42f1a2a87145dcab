#include "core/engine/collectives.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "core/sim/sim_communicator.h"
#include "tests/unit/flow_helpers.h"

namespace zoffload {
namespace {

// One rank: its flows, its collectives, and two floats per rank to exchange.
struct Rank {
  Rank(Communicator& communicator, uint32_t world_size)
      : collectives(communicator, failure), values(2 * world_size) {}

  DeviceSpan all() { return DeviceSpan(reinterpret_cast<uintptr_t>(values.data()), bytes()); }
  DeviceSpan own(uint32_t rank) { return all().subspan(8 * rank, 8); }
  uint64_t bytes() const { return values.size() * sizeof(float); }

  Failure failure;
  std::vector<Status> failures;
  FlowSet flows{[this](const Status& status) { failures.push_back(status); }};
  Collectives collectives;
  std::vector<float> values;
};

Task<Status> sum_after(Collectives& collectives, Gate& gate, Turn turn, double& value) {
  co_await gate;
  std::vector<double> values = {value};
  Status status = co_await collectives.all_reduce_sum(turn, values);
  ZO_CO_TRY(status);
  value = values[0];
  co_return Status();
}

class CollectivesTest : public testing::Test {
 protected:
  void open(uint32_t world_size) {
    group = std::make_unique<SimGroup>(clock, world_size, SimGroupOptions{}, 1, nullptr);
    for (uint32_t r = 0; r < world_size; ++r) ranks.emplace_back(group->rank(r), world_size);
  }
  void drive() {
    for (int idle_rounds = 0; idle_rounds < 3;) {
      uint32_t moved = 0;
      for (uint32_t r = 0; r < ranks.size(); ++r) {
        moved += group->rank(r).poll() + ranks[r].flows.tick();
      }
      idle_rounds = moved > 0 ? 0 : idle_rounds + 1;
      clock.doze(1'000'000'000);
    }
  }

  SimClock clock;
  std::unique_ptr<SimGroup> group;
  std::deque<Rank> ranks;
};

// Goal: collectives start in the order of their turns, whatever is ready first. Method: on each of
// two ranks three sums are ready in another order; the communicator is strict about turns.
TEST_F(CollectivesTest, StartInTurn) {
  open(2);
  Gate gates[2][3];
  double values[2][3] = {{1, 2, 3}, {10, 20, 30}};
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 3; ++i) {
      const Turn turn = ranks[r].collectives.take_turn();
      EXPECT_EQ(turn, static_cast<Turn>(i));
      ranks[r].flows.spawn("sum", sum_after(ranks[r].collectives, gates[r][i], turn, values[r][i]));
    }
  }
  gates[0][2].open = true;  // the last first, and the other way round on the other rank
  gates[1][1].open = true;
  drive();
  EXPECT_EQ(values[0][2], 3);
  EXPECT_EQ(ranks[0].flows.describe(3).find("waits for turn 2") == std::string::npos, false);
  gates[0][1].open = gates[1][2].open = true;
  drive();
  gates[0][0].open = gates[1][0].open = true;
  drive();
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(values[r][i], 11 * (i + 1));
    EXPECT_EQ(ranks[r].flows.count(), 0u);
  }
  EXPECT_FALSE(group->mismatch());
}

Task<Status> gather_then_scatter(Collectives& collectives, DeviceSpan own, DeviceSpan all) {
  const Turn first = collectives.take_turn();
  const Turn second = collectives.take_turn();
  Status status = co_await collectives.all_gather(first, own, all);
  ZO_CO_TRY(status);
  status = co_await collectives.reduce_scatter_mean(second, all, own, DType::kFloat32);
  co_return status;
}

// Goal: all-gather and reduce-scatter move what they say. Method: gather two ranks' numbers, then
// take their mean: equal on both ranks, so each gets its own back.
TEST_F(CollectivesTest, GatherAndScatter) {
  open(2);
  for (uint32_t r = 0; r < 2; ++r) {
    ranks[r].values[2 * r] = 1.0f + static_cast<float>(r);
    ranks[r].values[2 * r + 1] = 5.0f + static_cast<float>(r);
    ranks[r].flows.spawn(
        "f", gather_then_scatter(ranks[r].collectives, ranks[r].own(r), ranks[r].all()));
  }
  drive();
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks[r].flows.count(), 0u);
    EXPECT_TRUE(ranks[r].failures.empty());
    EXPECT_EQ(ranks[r].values[2 * r], 1.0f + static_cast<float>(r));
    EXPECT_EQ(ranks[r].values[2 * r + 1], 5.0f + static_cast<float>(r));
  }
}

// Goal: a turn that will never come returns the failure, and nothing is sent. Method: turn 0 is
// taken and never used; turn 1 waits for it; then the engine fails.
TEST_F(CollectivesTest, FailureEndsTheWaitForATurn) {
  open(2);
  Gate open_gate;
  open_gate.open = true;
  double value = 1;
  Collectives& collectives = ranks[0].collectives;
  static_cast<void>(collectives.take_turn());
  ranks[0].flows.spawn("sum", sum_after(collectives, open_gate, collectives.take_turn(), value));
  drive();
  EXPECT_EQ(ranks[0].flows.count(), 1u);
  EXPECT_TRUE(ranks[0].failure.set(Status(Code::kIoError, "gone")));
  drive();
  ASSERT_EQ(ranks[0].failures.size(), 1u);
  EXPECT_EQ(ranks[0].failures[0].to_string(), "kIoError: sum: gone");
  EXPECT_EQ(value, 1);
}

// Goal: a world of one exchanges nothing and waits for nobody. Method: turns out of order, and
// values that stay.
TEST_F(CollectivesTest, AloneIsDoneAtOnce) {
  open(1);
  Gate open_gate;
  open_gate.open = true;
  double value = 4;
  static_cast<void>(ranks[0].collectives.take_turn());
  const Turn turn = ranks[0].collectives.take_turn();
  ranks[0].flows.spawn("sum", sum_after(ranks[0].collectives, open_gate, turn, value));
  EXPECT_EQ(ranks[0].flows.tick(), 1u);
  EXPECT_EQ(ranks[0].flows.count(), 0u);
  EXPECT_EQ(value, 4);
}

}  // namespace
}  // namespace zoffload
