#include "bench/link_rig.h"

#include <array>
#include <deque>
#include <thread>

namespace zoffload::bench {
namespace {

constexpr uint32_t kInFlight = 2;  // for each way: the next copy waits beside the one that runs
constexpr uint64_t kMeasurePoolBytes = uint64_t{64} << 20;
constexpr uint64_t kMeasureBytes = uint64_t{4} << 20;

uint64_t now_ns() { return static_cast<uint64_t>(now_s() * 1e9); }

}  // namespace

const char* link_way_name(LinkWay way) {
  switch (way) {
    case LinkWay::kToDevice: return "to_device";
    case LinkWay::kToHost: return "to_host";
    case LinkWay::kBoth: return "both";
  }
  return "";
}

zoffload::Result<std::unique_ptr<LinkRig>> LinkRig::open(Device& device, uint64_t pool_bytes) {
  std::unique_ptr<LinkRig> rig(new LinkRig(device));
  for (const bool to_device : {true, false}) {
    Lane lane;
    lane.to_device = to_device;
    ZO_ASSIGN_OR_RETURN(lane.host, device.allocate_pinned(pool_bytes));
    ZO_ASSIGN_OR_RETURN(lane.device, device.allocate_hbm(pool_bytes));
    rig->lanes_.push_back(lane);
  }
  return rig;
}

void LinkRig::start(Seat& seat, uint64_t& offset, uint64_t bytes) {
  const Lane& lane = lanes_[seat.lane];
  if (offset + bytes > lane.host.size()) offset = 0;
  const HostSpan host = lane.host.subspan(offset, bytes);
  const DeviceSpan device = lane.device.subspan(offset, bytes);
  offset += bytes;
  seat.begin_ns = now_ns();
  if (lane.to_device) {
    device_.copy_to_device(host, device, seat.completion);
  } else {
    device_.copy_to_host(device, host, seat.completion);
  }
}

zoffload::Result<LinkSample> LinkRig::run(LinkWay way, uint64_t bytes, double runtime_s,
                                          const Stopped& stopped) {
  ZO_CHECK(bytes > 0);
  ZO_CHECK(bytes <= lanes_[0].host.size());
  std::array<uint64_t, 2> offsets{};
  std::deque<Seat> seats;  // never moves one
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    const LinkWay lane_way = lanes_[lane].to_device ? LinkWay::kToDevice : LinkWay::kToHost;
    if (way != LinkWay::kBoth && way != lane_way) continue;
    for (uint32_t i = 0; i < kInFlight; ++i) seats.emplace_back().lane = lane;
  }
  LinkSample sample;
  Status error;
  const double cpu_begin_s = cpu_now_s();
  const double begin_s = now_s();
  for (Seat& seat : seats) start(seat, offsets[seat.lane], bytes);
  size_t in_flight = seats.size();
  bool ending = false;
  while (in_flight > 0) {
    if (device_.poll() == 0) std::this_thread::yield();
    ending = ending || now_s() - begin_s >= runtime_s || (stopped && stopped());
    for (Seat& seat : seats) {
      if (!seat.completion.done() || seat.begin_ns == 0) continue;
      sample.latency_ns.add(now_ns() - seat.begin_ns);
      sample.bytes += seat.completion.bytes();
      if (error.ok()) error = seat.completion.status();
      ending = ending || !error.ok();
      if (ending) {
        seat.begin_ns = 0;  // rests
        --in_flight;
      } else {
        start(seat, offsets[seat.lane], bytes);
      }
    }
  }
  sample.seconds = now_s() - begin_s;
  sample.cpu_seconds = cpu_now_s() - cpu_begin_s;
  ZO_TRY(error);
  return sample;
}

zoffload::Result<LinkSample> measure_link(Device& device, LinkWay way, double runtime_s) {
  ZO_ASSIGN_OR_RETURN(const auto rig, LinkRig::open(device, kMeasurePoolBytes));
  return rig->run(way, kMeasureBytes, runtime_s);
}

}  // namespace zoffload::bench
