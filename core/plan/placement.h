// How something is shared out over the tiers.
#pragma once

namespace zoffload {

// Shares of the subgroups per tier; they add up to 1.
struct Placement {
  double hbm = 0;
  double host = 0;
  double nvme = 0;
  friend bool operator==(const Placement&, const Placement&) = default;
};

}  // namespace zoffload
