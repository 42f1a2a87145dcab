// A simulated accelerator: its memory is host memory, its copies take time and move their bytes
// when they end, and it refuses addresses that a real one could not reach. Up, down and on-device
// copies run independently of each other.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/ports/device.h"
#include "core/sim/in_flight.h"
#include "core/sim/random.h"
#include "core/sim/sim_clock.h"
#include "core/sim/trace.h"

namespace zoffload {

struct SimDeviceOptions {
  uint64_t latency_ns = 10'000;
  double to_device_bytes_per_ns = 25.0;  // GB/s; this and the next two REQUIRE > 0
  double to_host_bytes_per_ns = 25.0;
  double on_device_bytes_per_ns = 1000.0;
  uint64_t hbm_bytes = uint64_t{1} << 40;     // most that allocate_hbm() gives in all
  uint64_t pinned_bytes = uint64_t{1} << 40;  // ... allocate_pinned()
  uint64_t host_alignment = 2;                // of host addresses in copies: the smallest element
  bool host_visible = true;  // host_view() works, as on the host stand-in; false: as on a GPU
  bool any_order = false;    // each operation gets a random delay, so that others overtake it
  double error = 0.0;  // probability that an operation ends with kDeviceError and moves nothing
};

class SimDevice : public Device {
 public:
  // `clock` and `trace` outlive this; the trace may be null. `label` names the device in the trace.
  SimDevice(SimClock& clock, const SimDeviceOptions& options, uint64_t seed, Trace* trace,
            std::string label = "device");

  const char* name() const override { return "sim"; }
  Result<DeviceSpan> allocate_hbm(uint64_t bytes) override;
  Result<HostSpan> allocate_pinned(uint64_t bytes) override;
  void copy_to_device(HostSpan from, DeviceSpan to, Completion& completion) override;
  void copy_to_host(DeviceSpan from, HostSpan to, Completion& completion) override;
  void copy_on_device(DeviceSpan from, DeviceSpan to, Completion& completion) override;
  void fence(Stream stream, Completion& completion) override;
  uint32_t poll() override { return operations_.poll(); }
  HostSpan host_view(DeviceSpan span) override;

  // Memory of the user's that the device may touch too, such as a gathered bucket: from adopt()
  // until disown(). REQUIRES (disown): adopted with the same address; no copy of it in flight.
  void adopt(DeviceSpan memory);
  void disown(DeviceSpan memory);

  // The user's kernels: the stream is busy for this long more, and fences on it wait.
  void enqueue(Stream stream, uint64_t duration_ns);

  // The bytes behind device memory, host_visible or not: for tests and for the user's side of a
  // simulation.
  HostSpan memory(DeviceSpan span);

  uint32_t in_flight() const { return operations_.count(); }
  uint64_t error_count() const { return error_count_; }  // injected so far

 private:
  enum Direction : uint8_t { kToDevice, kToHost, kOnDevice };
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  using Ranges = std::map<uint64_t, uint64_t>;  // address to bytes; ranges do not overlap

  Result<uint64_t> allocate(uint64_t bytes, uint64_t limit_bytes, Ranges& ranges);
  void check_host(HostSpan span) const;
  void copy(Direction direction, uint64_t from, uint64_t to, uint64_t bytes,
            Completion& completion);
  void end_later(InFlight::Id id, uint64_t end_ns, uint64_t from, uint64_t to, uint64_t bytes);

  SimClock& clock_;
  const SimDeviceOptions options_;
  const std::string label_;
  Random random_;
  uint64_t error_count_ = 0;
  std::vector<Memory> memory_;  // owns every allocation
  Ranges hbm_;
  Ranges pinned_;
  Ranges adopted_;
  std::array<uint64_t, 3> link_free_ns_ = {};  // by direction: when its copies so far are through
  std::map<Stream, uint64_t> stream_free_ns_;  // when the user's work so far is done
  InFlight operations_;
};

}  // namespace zoffload
