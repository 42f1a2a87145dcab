// What only a running process can ask its machine. Everything else is read in /proc and /sys below
// `root`. Tests make both up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aio/probe.h"

namespace zoffload::bench {

struct NumaNode {
  uint32_t number = 0;  // as the kernel counts
  uint32_t cores = 0;
  uint64_t memory_bytes = 0;
};

struct Machine {
  std::string root = "/";
  std::string node;           // "trainer-7"
  std::string kernel;         // "6.18.44"
  std::string architecture;   // "x86_64"
  uint32_t cores_usable = 0;  // by this process's affinity
  uint32_t cores_total = 0;
  std::string simd_target;                // as in optim/simd_targets.h
  std::vector<NumaNode> numa_nodes;       // empty: unknown
  std::optional<uint64_t> memlock_bytes;  // none: no limit
  UringProbe uring;
  std::string why_no_libaio;  // empty: it works

  static Machine here();
};

}  // namespace zoffload::bench
