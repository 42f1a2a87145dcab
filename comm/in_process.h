// Collectives among ranks that live in one process: for tests, and for world size 1. Ranks may be
// driven from one thread in turn, or each from its own. It is the strictest communicator: every
// call is compared with the peers', and a difference in turn, kind, size or dtype ends everything
// with an error that names both.
//
//   InProcessGroup group(2);
//   auto first = group.rank(0, device), second = group.rank(1, device);
//   auto alone = InProcessGroup(1).rank(0, device);
#pragma once

#include <cstdint>
#include <memory>

#include "core/ports/communicator.h"
#include "core/ports/device.h"

namespace zoffload {

class InProcessGroup {
 public:
  explicit InProcessGroup(uint32_t world_size);
  ~InProcessGroup();

  // The communicator of one rank; once per rank. It may outlive the group, not `device`. REQUIRES:
  // the CPU can address the memory of `device` (host_view); nothing in flight when the communicator
  // is destroyed; turns strictly increasing on each rank.
  std::unique_ptr<Communicator> rank(uint32_t rank, Device& device);

 private:
  class Meetings;
  class Rank;

  std::shared_ptr<Meetings> meetings_;  // shared with the ranks alone
};

}  // namespace zoffload
