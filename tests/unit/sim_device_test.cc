#include "core/sim/sim_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace zoffload {
namespace {

constexpr uint64_t kForever = ~uint64_t{0};

// A device with one allocation of each kind.
struct Rig {
  explicit Rig(const SimDeviceOptions& options = {}, uint64_t seed = 1)
      : device(clock, options, seed, &trace) {
    hbm = *device.allocate_hbm(kBytes);
    pinned = *device.allocate_pinned(kBytes);
  }
  void drain() {
    device.poll();
    while (!clock.idle()) {
      clock.doze(kForever);
      device.poll();
    }
  }

  static constexpr uint64_t kBytes = 64 << 10;
  SimClock clock;
  Trace trace{20};
  SimDevice device;
  DeviceSpan hbm;
  HostSpan pinned;
};

// Goal: bytes go up, across and down, at the moment of completion and not before.
// Method: a pattern up to one half, across to the other, and back; the source is changed while the
// copy is in flight.
TEST(SimDevice, MovesBytesWhenTheCopyEnds) {
  Rig rig;
  const uint64_t half = Rig::kBytes / 2;
  Completion up, across, down;
  std::ranges::fill(rig.pinned, std::byte{1});
  rig.device.copy_to_device(rig.pinned.first(half), rig.hbm.subspan(0, half), up);
  EXPECT_EQ(rig.device.memory(rig.hbm)[0], std::byte{0});
  std::ranges::fill(rig.pinned, std::byte{2});
  rig.drain();
  EXPECT_EQ(up.bytes(), half);
  EXPECT_EQ(rig.device.memory(rig.hbm)[half - 1], std::byte{2});
  EXPECT_EQ(rig.device.memory(rig.hbm)[half], std::byte{0});

  rig.device.copy_on_device(rig.hbm.subspan(0, half), rig.hbm.subspan(half, half), across);
  rig.drain();
  std::ranges::fill(rig.pinned, std::byte{0});
  rig.device.copy_to_host(rig.hbm.subspan(half, half), rig.pinned.last(half), down);
  rig.drain();
  EXPECT_EQ(across.bytes(), half);
  EXPECT_EQ(down.bytes(), half);
  EXPECT_EQ(rig.pinned[half - 1], std::byte{0});
  EXPECT_EQ(rig.pinned[half], std::byte{2});
}

// Goal: copies take bytes / rate plus a latency, one after the other in a direction, both
// directions at once. Method: two copies up and one down; read the clock at each completion.
TEST(SimDevice, TakesTheTimeOfItsRates) {
  Rig rig({.latency_ns = 100, .to_device_bytes_per_ns = 2.0, .to_host_bytes_per_ns = 1.0});
  Completion first, second, down;
  rig.device.copy_to_device(rig.pinned.first(1000), rig.hbm.subspan(0, 1000), first);
  rig.device.copy_to_device(rig.pinned.first(1000), rig.hbm.subspan(0, 1000), second);
  rig.device.copy_to_host(rig.hbm.subspan(0, 1050), rig.pinned.first(1050), down);
  std::vector<uint64_t> ends;
  while (!rig.clock.idle()) {
    rig.clock.doze(kForever);
    if (rig.device.poll() > 0) ends.push_back(rig.clock.now_ns());
  }
  EXPECT_EQ(ends, (std::vector<uint64_t>{600, 1100, 1150}));
}

// Goal: memory is zeroed, page-aligned and limited; an error says how much was asked for.
// Method: allocate up to the limit and past it.
TEST(SimDevice, LimitsItsMemory) {
  Rig rig({.hbm_bytes = Rig::kBytes + kPageBytes, .pinned_bytes = Rig::kBytes});
  EXPECT_EQ(rig.hbm.address() % kPageBytes, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(rig.pinned.data()) % kPageBytes, 0u);
  EXPECT_TRUE(std::ranges::all_of(rig.pinned, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_TRUE(rig.device.allocate_hbm(kPageBytes).ok());
  const auto hbm = rig.device.allocate_hbm(1);
  EXPECT_EQ(hbm.status().code(), Code::kOutOfMemory);
  EXPECT_NE(hbm.status().message().find("1 B"), std::string::npos);
  EXPECT_EQ(rig.device.allocate_pinned(1).status().code(), Code::kOutOfMemory);
}

// Goal: host_view() is the memory, or nothing where the device is to look like a GPU.
// Method: both settings.
TEST(SimDevice, IsVisibleOnRequest) {
  Rig visible, hidden({.host_visible = false});
  EXPECT_EQ(visible.device.host_view(visible.hbm).data(),
            visible.device.memory(visible.hbm).data());
  EXPECT_TRUE(hidden.device.host_view(hidden.hbm).empty());
  EXPECT_EQ(hidden.device.memory(hidden.hbm).size(), Rig::kBytes);
}

// Goal: the user's memory is reachable while it is adopted, and never otherwise; foreign or
// unaligned host memory and ranges that run out of an allocation are refused. Method: death tests
// around one copy that works.
TEST(SimDeviceDeathTest, RefusesForeignAddresses) {
  Rig rig;
  std::vector<std::byte> user(256);
  const DeviceSpan bucket(reinterpret_cast<uintptr_t>(user.data()), user.size());
  const HostSpan host = rig.pinned.first(256);
  Completion completion;
  EXPECT_DEATH(rig.device.copy_to_device(host, bucket, completion), "known");
  rig.device.adopt(bucket);
  EXPECT_DEATH(rig.device.adopt(bucket), "is_new");
  host[9] = std::byte{9};
  rig.device.copy_to_device(host, bucket, completion);
  rig.drain();
  EXPECT_EQ(user[9], std::byte{9});
  rig.device.disown(bucket);
  EXPECT_DEATH(rig.device.copy_to_host(bucket, host, completion), "known");

  const DeviceSpan device = rig.hbm.subspan(0, 256);
  EXPECT_DEATH(rig.device.copy_to_device(user, device, completion), "pinned_");
  EXPECT_DEATH(rig.device.copy_to_device(rig.pinned.subspan(1, 256), device, completion),
               "host_alignment");
  const DeviceSpan past(rig.hbm.address() + Rig::kBytes - 255, 256);
  EXPECT_DEATH(rig.device.copy_to_device(host, past, completion), "known");
  EXPECT_DEATH(rig.device.copy_to_device(host, device.subspan(0, 255), completion), "size");
}

// Goal: a fence waits for its stream's work, and for that alone.
// Method: work on two streams; read the clock when each fence is done.
TEST(SimDevice, FencesWaitForTheirStream) {
  Rig rig({.latency_ns = 10});
  rig.device.enqueue(1, 500);
  rig.device.enqueue(1, 500);
  rig.device.enqueue(2, 300);
  Completion one, two, idle;
  rig.device.fence(1, one);
  rig.device.fence(2, two);
  rig.device.fence(0, idle);
  std::vector<uint64_t> ends;
  while (!rig.clock.idle()) {
    rig.clock.doze(kForever);
    rig.device.poll();
    ends.push_back(rig.clock.now_ns());
    EXPECT_EQ(one.done(), rig.clock.now_ns() >= 1010);
  }
  EXPECT_EQ(ends, (std::vector<uint64_t>{10, 310, 1010}));
}

// Goal: an injected error is kDeviceError, moves nothing and is counted.
// Method: certain errors.
TEST(SimDevice, InjectsErrors) {
  Rig rig({.error = 1.0});
  std::ranges::fill(rig.pinned, std::byte{1});
  Completion copy;
  rig.device.copy_to_device(rig.pinned, rig.hbm, copy);
  rig.drain();
  EXPECT_EQ(copy.status().code(), Code::kDeviceError);
  EXPECT_EQ(copy.bytes(), 0u);
  EXPECT_EQ(rig.device.memory(rig.hbm)[0], std::byte{0});
  EXPECT_EQ(rig.device.error_count(), 1u);
}

struct Outcome {
  uint64_t hash;
  bool in_order;
};

// 20 copies up, some of which fail; whether they ended in order.
Outcome run(bool any_order, uint64_t seed) {
  Rig rig({.any_order = any_order, .error = 0.2}, seed);
  std::deque<Completion> copies(20);
  for (Completion& copy : copies) rig.device.copy_to_device(rig.pinned, rig.hbm, copy);
  bool in_order = true;
  while (!rig.clock.idle()) {
    rig.clock.doze(kForever);
    rig.device.poll();
    for (size_t i = 1; i < copies.size(); ++i) {
      if (copies[i].done() && !copies[i - 1].done()) in_order = false;
    }
  }
  return {rig.trace.hash(), in_order};
}

// Goal: operations overtake each other only on request, and a run is a function of its seed.
// Method: runs with and without any_order, of two seeds.
TEST(SimDevice, OrderAndTraceFollowTheSeed) {
  EXPECT_TRUE(run(false, 1).in_order);
  EXPECT_FALSE(run(true, 1).in_order);
  EXPECT_EQ(run(true, 1).hash, run(true, 1).hash);
  EXPECT_NE(run(true, 1).hash, run(true, 2).hash);
}

}  // namespace
}  // namespace zoffload
