// How fast a step can be at best: the time that each resource needs for the bytes that the step
// moves, at the speeds it was measured to have. A pure function of numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/profile.h"

namespace zoffload {

// Of one drive, in bytes per second; 0: unknown. `mixed`: half of the requests reads, half writes.
struct PathRates {
  double read = 0;
  double write = 0;
  double mixed = 0;
};

struct ResourceRates {
  std::vector<PathRates> paths;  // in the order of nvme_paths; may be shorter
  double to_device = 0;          // bytes per second; 0: unknown
  double to_host = 0;
  double memory = 0;  // bytes read + bytes written
};

// What the profile says of the link and of the memory; paths are whoever opens them to add.
ResourceRates rates_of(const Profile& profile);

// R/r + W/w - k * min(R/r, W/w), where k is 0 of a drive that is half duplex, 1 of a full duplex
// one, and follows from the mixed rate. With the mixed rate alone: (R + W) / mixed. 0: nothing is
// known.
double disk_seconds(uint64_t read_bytes, uint64_t written_bytes, const PathRates& rates);

// The time that one resource needs for a step.
struct Bound {
  std::string resource;  // "disk /mnt/a", "link up", "link down", "memory", "CPU workers"
  double seconds = 0;
};

}  // namespace zoffload
