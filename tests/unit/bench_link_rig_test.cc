#include <gtest/gtest.h>

#include <cstring>

#include "bench/link_rig.h"
#include "cuda/host_device.h"

namespace zoffload::bench {
namespace {

// Copies like the host stand-in, notes how far apart the spans are, and may fail.
class NotingDevice final : public HostDevice {
 public:
  void copy_to_device(HostSpan from, DeviceSpan to, Completion& completion) override {
    note(from);
    ++to_device;
    HostDevice::copy_to_device(from, to, completion);
  }
  void copy_to_host(DeviceSpan from, HostSpan to, Completion& completion) override {
    note(to);
    ++to_host;
    HostDevice::copy_to_host(from, to, completion);
  }
  void note(HostSpan host) {
    lowest = lowest == nullptr || host.data() < lowest ? host.data() : lowest;
    spans += last != host.data() ? 1 : 0;
    last = host.data();
  }
  const std::byte* lowest = nullptr;
  const std::byte* last = nullptr;
  int spans = 0;  // copies that were not at the place of the one before
  int to_device = 0;
  int to_host = 0;
};

constexpr uint64_t kPool = 1 << 20;

// Stops after `polls` looks.
Stopped after(int polls) {
  return [left = polls]() mutable { return --left < 0; };
}

// Goal: each way moves in its own direction, and both means both. Method: a device that counts;
// every byte that was counted was in a copy that was delivered.
TEST(LinkRig, WaysAndBytes) {
  for (const LinkWay way : {LinkWay::kToDevice, LinkWay::kToHost, LinkWay::kBoth}) {
    NotingDevice device;
    const auto rig = LinkRig::open(device, kPool);
    ASSERT_TRUE(rig.ok());
    const auto sample = (*rig)->run(way, 64 << 10, 60, after(10));
    ASSERT_TRUE(sample.ok());
    EXPECT_EQ(device.to_device > 0, way != LinkWay::kToHost);
    EXPECT_EQ(device.to_host > 0, way != LinkWay::kToDevice);
    const uint64_t copies = static_cast<uint64_t>(device.to_device + device.to_host);
    EXPECT_EQ(sample->bytes, copies << 16);
    EXPECT_EQ(sample->latency_ns.count(), copies);
    EXPECT_GT(sample->bytes_per_s(), 0);
  }
}

// Goal: copies walk through the whole pool: a small buffer would stay in the cache. Method: sizes
// that do and do not divide the pool; no two copies in a row at one place.
TEST(LinkRig, CyclesThroughThePool) {
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{300'000}, uint64_t{500'001}}) {
    NotingDevice device;
    const auto rig = LinkRig::open(device, kPool);
    ASSERT_TRUE(rig.ok());
    ASSERT_TRUE((*rig)->run(LinkWay::kToDevice, bytes, 60, after(300)).ok());
    EXPECT_EQ(device.spans, device.to_device);
    EXPECT_GE(device.to_device, 600);
  }
}

// Goal: the end of the time ends it. Method: no time at all: the first copies, and no more.
TEST(LinkRig, EndsWhenTheTimeIsOver) {
  NotingDevice device;
  const auto rig = LinkRig::open(device, kPool);
  ASSERT_TRUE(rig.ok());
  ASSERT_TRUE((*rig)->run(LinkWay::kBoth, kPool, 0).ok());
  EXPECT_EQ(device.to_device + device.to_host, 4);
}

}  // namespace
}  // namespace zoffload::bench
