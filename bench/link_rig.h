// Copies between host and device through the Device port, out of buffers that are cycled through:
// the measuring loop of `link` and `profile`.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/histogram.h"
#include "bench/run_jobs.h"
#include "core/ports/device.h"

namespace zoffload::bench {

enum class LinkWay : uint8_t { kToDevice, kToHost, kBoth };
const char* link_way_name(LinkWay way);  // "to_device", "to_host", "both"

struct LinkSample {
  uint64_t bytes = 0;  // both ways added up
  double seconds = 0;
  double cpu_seconds = 0;
  Histogram latency_ns;  // of one copy, start to delivery

  double bytes_per_s() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

class LinkRig {
 public:
  // Takes four times `pool_bytes`: pinned and device memory for each way.
  static zoffload::Result<std::unique_ptr<LinkRig>> open(Device& device, uint64_t pool_bytes);

  // Copies of `bytes` each, two in flight for each way, for `runtime_s`. REQUIRES: 0 < bytes <=
  // pool_bytes.
  zoffload::Result<LinkSample> run(LinkWay way, uint64_t bytes, double runtime_s,
                                   const Stopped& stopped = {});

 private:
  struct Lane {
    HostSpan host;
    DeviceSpan device;
    bool to_device = false;
  };

  // One copy in flight.
  struct Seat {
    size_t lane = 0;
    uint64_t begin_ns = 0;
    Completion completion;
  };

  explicit LinkRig(Device& device) : device_(device) {}
  void start(Seat& seat, uint64_t& offset, uint64_t bytes);

  Device& device_;
  std::vector<Lane> lanes_;
};

// One measurement with copies of 4 MiB, for those who want a single figure.
zoffload::Result<LinkSample> measure_link(Device& device, LinkWay way, double runtime_s);

}  // namespace zoffload::bench
