#include "bindings/books.h"

#include <nanobind/stl/string.h>

#include "bindings/engine.h"

namespace nb = nanobind;

namespace zoffload {

Books Books::of(const Engine& engine) {
  const Attribution& attribution = engine.attribution();
  Books books;
  books.last = attribution.last_step();
  books.total = attribution.spent();
  books.last_bounds = attribution.bounds(books.last);
  books.total_bounds = attribution.bounds(books.total);
  books.resources = attribution.resource_names();
  books.paths = attribution.paths();
  books.step_count = attribution.step_count();
  books.stats = engine.stats();
  return books;
}

namespace {

double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

void add_moves(nb::list& moves, const char* from, const char* to, const Spent::ByRole& bytes) {
  for (size_t role = 0; role < kRoleCount; ++role) {
    if (bytes[role] == 0) continue;
    moves.append(nb::make_tuple(from, to, role_name(static_cast<Role>(role)), bytes[role]));
  }
}

nb::dict spent_dict(const Spent& spent, const std::vector<Bound>& bounds,
                    const std::vector<std::string>& resources) {
  nb::list moves;
  for (size_t tier = 0; tier < kTierCount; ++tier) {
    const char* name = tier_name(static_cast<TierKind>(tier));
    add_moves(moves, name, "host", spent.loaded_bytes[tier]);
    add_moves(moves, "host", name, spent.stored_bytes[tier]);
  }
  add_moves(moves, "host", "device", spent.to_device_bytes);
  add_moves(moves, "device", "host", spent.to_host_bytes);
  add_moves(moves, "hbm", "device", spent.on_device_bytes);
  nb::dict stalls;
  for (size_t i = 0; i < kCauseCount; ++i) {
    stalls[cause_name(static_cast<Cause>(i))] = seconds(spent.stall_ns[i]);
  }
  nb::dict busy;
  nb::dict bytes;
  for (size_t i = 0; i < spent.resources.size(); ++i) {
    const nb::str name(resources[i].c_str());
    busy[name] = seconds(spent.resources[i].busy_ns);
    bytes[name] = spent.resources[i].bytes;
  }
  nb::dict bound;
  for (const Bound& each : bounds) bound[nb::str(each.resource.c_str())] = each.seconds;
  nb::dict result;
  result["seconds"] = seconds(spent.wall_ns);
  result["in_step_seconds"] = seconds(spent.step_ns);
  result["worker_seconds"] = seconds(spent.worker_ns);
  result["moves"] = moves;
  result["stall_seconds"] = stalls;
  result["busy_seconds"] = busy;
  result["resource_bytes"] = bytes;
  result["bound_seconds"] = bound;
  return result;
}

nb::list resident_list(const Plan& plan) {
  std::array<Spent::ByRole, kTierCount> bytes{};
  for (SubgroupId id = 0; id < plan.layout.subgroups.size(); ++id) {
    const SubgroupLayout& subgroup = plan.layout.subgroups[id];
    const BucketLayout& bucket = plan.layout.buckets[subgroup.bucket];
    for (const Role role : {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
      const TierKind tier = role == Role::kParam ? plan.homes[id].param : plan.homes[id].state;
      if (!has_role(bucket, role) || tier == TierKind::kInPlace) continue;
      bytes[static_cast<size_t>(tier)][static_cast<size_t>(role)] +=
          role_bytes(bucket, role, subgroup.numel);
    }
  }
  bytes[static_cast<size_t>(TierKind::kHost)][static_cast<size_t>(Role::kGrad)] =
      plan.gradient_bytes;
  nb::list resident;
  for (size_t tier = 0; tier < kTierCount; ++tier) {
    for (size_t role = 0; role < kRoleCount; ++role) {
      if (bytes[tier][role] == 0) continue;
      resident.append(nb::make_tuple(tier_name(static_cast<TierKind>(tier)),
                                     role_name(static_cast<Role>(role)), bytes[tier][role]));
    }
  }
  return resident;
}

}  // namespace

nb::dict books_dict(const Books& books, const Plan& plan) {
  nb::dict result;
  result["step"] = spent_dict(books.last, books.last_bounds, books.resources);
  result["total"] = spent_dict(books.total, books.total_bounds, books.resources);
  result["step_count"] = books.step_count;
  result["skipped_step_count"] = books.stats.skipped_step_count;
  result["prefetched_count"] = books.stats.prefetched_count;
  result["on_demand_count"] = books.stats.on_demand_count;
  nb::dict first;
  for (const TierPath& path : books.paths) {
    first[nb::str(path.name.c_str())] = path.first_written_bytes;
  }
  result["first_written_bytes"] = first;
  result["resident_bytes"] = resident_list(plan);
  return result;
}

nb::tuple trace_tuple(const TraceEvents& trace) {
  nb::list events;
  for (const StepTrace::Event& event : trace.events) {
    const std::string track =
        event.track == StepTrace::kUser ? "user's thread" : trace.resources[event.track];
    const std::string name(event.name.text());
    events.append(nb::make_tuple(track, name, event.begin_ns, event.end_ns, event.bytes));
  }
  return nb::make_tuple(events, trace.dropped_count);
}

// ---- The engine's verbs

nb::dict PyEngine::books() {
  if (last_books_.has_value()) return books_dict(*last_books_, plan_);
  Books books;
  call_now("books", [&books](Engine& engine) {
    books = Books::of(engine);
    return Status();
  });
  return books_dict(books, plan_);
}

void PyEngine::start_trace(uint32_t capacity) {
  call_now("start_trace", [=](Engine& engine) {
    engine.attribution().start_trace(capacity);
    return Status();
  });
}

nb::tuple PyEngine::take_trace() {
  TraceEvents trace;
  call_now("take_trace", [&trace](Engine& engine) {
    Attribution& attribution = engine.attribution();
    trace.events = attribution.trace().take();
    trace.resources = attribution.resource_names();
    trace.dropped_count = attribution.trace().dropped_count();
    return Status();
  });
  return trace_tuple(trace);
}

void PyEngine::stop_trace() {
  call_now("stop_trace", [](Engine& engine) {
    engine.attribution().stop_trace();
    return Status();
  });
}

}  // namespace zoffload
