// The table of Workers implementations under test. Adding one is a row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "core/ports/workers.h"
#include "tests/conformance/sim_factories.h"
#ifdef ZOFFLOAD_TBB_WORKERS
#include "optim/tbb_workers.h"
#endif

namespace zoffload {

struct WorkersUnderTest {
  std::unique_ptr<Workers> workers;
  std::function<void()>
      pump;  // called between polls: lets time pass, in whatever way this implementation needs
};

struct WorkersFactory {
  std::string name;
  std::function<WorkersUnderTest(uint32_t count)> make;
};

inline void PrintTo(const WorkersFactory& factory, std::ostream* to) { *to << factory.name; }

inline std::vector<WorkersFactory> workers_factories() {
  std::vector<WorkersFactory> factories;
  factories.push_back({"sim", [](uint32_t count) {
                         auto workers = std::make_unique<WithClock<SimWorkers>>(
                             SimWorkersOptions{.count = count}, 1, nullptr);
                         auto pump = workers->pump();
                         return WorkersUnderTest{std::move(workers), std::move(pump)};
                       }});
#ifdef ZOFFLOAD_TBB_WORKERS
  factories.push_back({"tbb", [](uint32_t count) {
                         return WorkersUnderTest{std::make_unique<TbbWorkers>(count),
                                                 [] { std::this_thread::yield(); }};
                       }});
#endif
  return factories;
}

}  // namespace zoffload
