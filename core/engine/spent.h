// Where the time went and what was moved: counters since open(), or, as a difference, of one step.
// Sums of steps are exact: every counter is an integer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "core/engine/wait_for.h"

namespace zoffload {

// What can be busy. Each path of the NVMe tier has three more, from kPaths on: both directions
// together, reads, writes.
struct Resource {
  static constexpr uint32_t kLinkUp = 0;    // host to device
  static constexpr uint32_t kLinkDown = 1;  // device to host
  static constexpr uint32_t kOnDevice = 2;
  static constexpr uint32_t kWorkers = 3;  // the engine's jobs
  static constexpr uint32_t kUpdate = 4;   // of these, the optimizer's; in bytes of memory traffic
  static constexpr uint32_t kCollective = 5;
  static constexpr uint32_t kUserStream = 6;
  static constexpr uint32_t kPaths = 7;

  static constexpr uint32_t path(uint32_t path) { return kPaths + 3 * path; }
  static constexpr uint32_t path_read(uint32_t path) { return kPaths + 3 * path + 1; }
  static constexpr uint32_t path_write(uint32_t path) { return kPaths + 3 * path + 2; }
};

struct ResourceSpent {
  uint64_t busy_ns = 0;  // with anything in flight
  uint64_t bytes = 0;    // whose move has ended
};

struct Spent {
  using ByRole = std::array<uint64_t, kRoleCount>;

  uint64_t wall_ns = 0;
  uint64_t step_ns = 0;                           // of these, the user was in step() or settle()
  std::array<uint64_t, kCauseCount> stall_ns{};   // the user waited in a verb, by Cause
  std::array<ByRole, kTierCount> loaded_bytes{};  // counted when a load starts, as by the tier
  std::array<ByRole, kTierCount> stored_bytes{};
  ByRole to_device_bytes{};
  ByRole to_host_bytes{};
  ByRole on_device_bytes{};
  uint64_t worker_ns = 0;                // all workers' time in jobs, sums of extents included
  std::vector<ResourceSpent> resources;  // by Resource

  uint64_t stalled_ns() const;
  Spent& operator+=(const Spent& other);  // REQUIRES: of the same engine, or this is empty
  Spent& operator-=(const Spent& other);
};

}  // namespace zoffload
