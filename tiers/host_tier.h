// Extents in pinned host memory. The CPU addresses them where they lie (host_bytes), so load and
// store are for callers that want a copy; the copy runs in poll().
#pragma once

#include <cstdint>
#include <vector>

#include "core/ports/tier.h"

namespace zoffload {

class HostTier : public Tier {
 public:
  // `arena` is zeroed, page-aligned, and outlives the tier.
  explicit HostTier(HostSpan arena);
  ~HostTier() override;

  HostSpan host_bytes(Extent extent) override;
  uint32_t poll() override;

 private:
  struct Copy {
    HostSpan from;
    HostSpan to;
    Completion* completion;
  };

  void do_load(Extent from, HostSpan to, Urgency, Completion& completion) override;
  void do_store(HostSpan from, Extent to, Completion& completion) override;
  void start(HostSpan from, HostSpan to, Completion& completion);

  const HostSpan arena_;
  std::vector<Copy> in_flight_;
};

}  // namespace zoffload
