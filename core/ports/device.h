// An accelerator: its memory, pinned host memory, and asynchronous copies between them.
//
// Used from the control thread. Operations may finish in any order.
#pragma once

#include <cstdint>

#include "core/base/span.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/ports/completion.h"

namespace zoffload {

class Device {
 public:
  virtual ~Device() = default;  // frees what was allocated. REQUIRES: nothing in flight

  virtual const char* name() const = 0;

  // Zeroed memory, at open() only; at least page-aligned. kOutOfMemory says how much was asked for.
  virtual Result<DeviceSpan> allocate_hbm(uint64_t bytes) = 0;
  virtual Result<HostSpan> allocate_pinned(uint64_t bytes) = 0;

  // Sizes must be equal. Host spans must lie in memory from allocate_pinned(); device spans may
  // also be the user's (a gathered bucket is torch's storage).
  virtual void copy_to_device(HostSpan from, DeviceSpan to, Completion& completion) = 0;
  virtual void copy_to_host(DeviceSpan from, HostSpan to, Completion& completion) = 0;
  virtual void copy_on_device(DeviceSpan from, DeviceSpan to, Completion& completion) = 0;

  // Done when all that the user had enqueued on `stream` before this call is done.
  virtual void fence(Stream stream, Completion& completion) = 0;

  virtual uint32_t poll() = 0;  // delivers what has finished; returns the number delivered

  // The bytes themselves where the CPU can address this device's memory (the host stand-in); else
  // empty.
  virtual HostSpan host_view(DeviceSpan) { return {}; }
};

}  // namespace zoffload
