// Extents in the accelerator's own memory: one arena, copied to and from pinned host memory by the
// device.
#pragma once

#include <cstdint>

#include "core/ports/device.h"
#include "core/ports/tier.h"

namespace zoffload {

class HbmTier : public Tier {
 public:
  // `arena` is zeroed, page-aligned memory of `device`; both outlive the tier. Host spans given to
  // load() and store() must be pinned by `device`.
  HbmTier(Device& device, DeviceSpan arena);

  DeviceSpan device_bytes(Extent extent) override {
    return arena_.subspan(extent.offset, extent.bytes);
  }
  uint32_t poll() override { return device_.poll(); }

 private:
  void do_load(Extent from, HostSpan to, Urgency, Completion& completion) override;
  void do_store(HostSpan from, Extent to, Completion& completion) override;

  Device& device_;
  const DeviceSpan arena_;
};

}  // namespace zoffload
