// Where time and bytes went, from the engine's Attribution to Python: a copy taken on the control
// thread, then plain dicts.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/engine.h"

namespace zoffload {

struct Books {
  Spent last;   // the step that ended last
  Spent total;  // since the engine was opened
  std::vector<Bound> last_bounds;
  std::vector<Bound> total_bounds;
  std::vector<std::string> resources;  // by Resource
  std::vector<TierPath> paths;
  uint64_t step_count = 0;
  EngineStats stats;

  static Books of(const Engine& engine);
};

// {"step": ..., "total": ..., "step_count", "skipped_step_count", "prefetched_count",
// "on_demand_count", "first_written_bytes": {path: bytes}, "resident_bytes": [(tier, role, bytes)]}
nanobind::dict books_dict(const Books& books, const Plan& plan);

// (track, name, begin_ns, end_ns, bytes), and how many were dropped since the trace was started.
struct TraceEvents {
  std::vector<StepTrace::Event> events;
  std::vector<std::string> resources;
  uint64_t dropped_count = 0;
};
nanobind::tuple trace_tuple(const TraceEvents& trace);

}  // namespace zoffload
