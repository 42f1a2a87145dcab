// The rows of core/sim/: a quiet disk, and one whose requests end late and in any order.
#include <memory>

#include "tests/conformance/io_queue_factories.h"
#include "tests/conformance/sim_factories.h"

namespace zoffload::test {
namespace {

OpenedQueue open_sim(const SimDiskFaults& faults) {
  auto queue = std::make_unique<WithClock<SimIoQueue>>(SimDiskOptions(), faults, 1, nullptr);
  Pump pump = queue->pump();
  return {std::move(queue), std::move(pump), ""};
}

const IoQueueRow kSimRows[] = {
    {"sim", [] { return open_sim({}); }},
    {"sim_reordered", [] { return open_sim({.slow = 0.05, .reorder = 0.5}); }},
};

INSTANTIATE_TEST_SUITE_P(Sim, IoQueueTest, testing::ValuesIn(kSimRows), row_name);

}  // namespace
}  // namespace zoffload::test
