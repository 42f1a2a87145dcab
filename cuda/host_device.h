// The host-memory stand-in for an accelerator: "HBM" is host memory too, and device addresses are
// host addresses. It serves CPU training and every test. Copies run inside poll(), never inside the
// call that starts them, so callers meet the same asynchrony as with a real device.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "core/base/span.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/ports/completion.h"
#include "core/ports/device.h"

namespace zoffload {

class HostDevice : public Device {
 public:
  HostDevice();
  ~HostDevice() override;  // In a forked child it leaves the parent's memory alone.
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  const char* name() const override { return "host"; }

  // 2 MiB aligned, in huge pages where the kernel has them, every page present. A forked child does
  // not see it.
  Result<DeviceSpan> allocate_hbm(uint64_t bytes) override;
  Result<HostSpan> allocate_pinned(uint64_t bytes) override;

  void copy_to_device(HostSpan from, DeviceSpan to, Completion& completion) override;
  void copy_to_host(DeviceSpan from, HostSpan to, Completion& completion) override;
  void copy_on_device(DeviceSpan from, DeviceSpan to, Completion& completion) override;

  // There are no streams: what the user computed on the CPU is done when the call returns.
  void fence(Stream stream, Completion& completion) override;

  uint32_t poll() override;

  HostSpan host_view(DeviceSpan span) override;

 private:
  // A copy, or (with no bytes) a fence. They run in the order in which they were started.
  struct Operation {
    HostSpan from;
    HostSpan to;
    Completion* completion;
  };

  void start(HostSpan from, HostSpan to, Completion& completion);
  bool is_pinned(HostSpan span) const;

  const pid_t owner_;  // the process that mapped the memory
  std::vector<HostSpan> hbm_;
  std::vector<HostSpan> pinned_;
  std::vector<Operation> in_flight_;
};

}  // namespace zoffload
