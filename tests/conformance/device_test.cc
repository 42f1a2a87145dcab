// What every Device promises, over a table of devices. Bytes on the device are seen only through
// copies, so that the tests fit devices whose memory the CPU cannot address.
#include "core/ports/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "cuda/host_device.h"
#include "tests/conformance/sim_factories.h"

namespace zoffload {
namespace {

struct DeviceRow {
  const char* name;
  std::unique_ptr<Device> (*make)();
};

const DeviceRow kDeviceRows[] = {
    {"host", [] { return std::unique_ptr<Device>(std::make_unique<HostDevice>()); }},
    {"sim", [] { return make_sim_device(/*host_visible=*/true); }},
    {"sim_opaque", [] { return make_sim_device(/*host_visible=*/false); }},
};

constexpr uint64_t kBytes = 3 * kPageBytes + 512;

class DeviceTest : public testing::TestWithParam<DeviceRow> {
 protected:
  HostSpan pinned(uint64_t bytes = kBytes) { return device_->allocate_pinned(bytes).value(); }
  DeviceSpan hbm(uint64_t bytes = kBytes) { return device_->allocate_hbm(bytes).value(); }

  void wait(const Completion& completion) {
    for (int polls = 0; polls < 10'000'000 && !completion.done(); ++polls) device_->poll();
    ASSERT_TRUE(completion.done());
    ASSERT_TRUE(completion.status().ok()) << completion.status().to_string();
  }

  std::unique_ptr<Device> device_ = GetParam().make();
};

std::vector<std::byte> counting(uint64_t bytes, unsigned from) {
  std::vector<std::byte> values(bytes);
  for (std::byte& value : values) value = static_cast<std::byte>(from++ * 37 >> 3);
  return values;
}

// Goal: memory comes page-aligned, of the size asked for, zeroed. Method: look at it; the device's
// through a copy.
TEST_P(DeviceTest, MemoryIsAlignedAndZeroed) {
  const HostSpan host = pinned();
  const DeviceSpan device = hbm();
  EXPECT_EQ(host.size(), kBytes);
  EXPECT_EQ(device.bytes(), kBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(host.data()) % kPageBytes, 0u);
  EXPECT_EQ(device.address() % kPageBytes, 0u);
  EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](std::byte b) { return b == std::byte{0}; }));
  std::fill(host.begin(), host.end(), std::byte{9});
  Completion copied;
  device_->copy_to_host(device, host, copied);
  wait(copied);
  EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](std::byte b) { return b == std::byte{0}; }));
}

// Goal: more memory than there is is an error with the number, not a crash. Method: ask for 2^60
// bytes.
TEST_P(DeviceTest, OutOfMemoryNamesTheBytes) {
  const uint64_t bytes = uint64_t{1} << 60;
  for (const Status& status :
       {device_->allocate_hbm(bytes).status(), device_->allocate_pinned(bytes).status()}) {
    EXPECT_EQ(status.code(), Code::kOutOfMemory);
    EXPECT_NE(status.message().find(std::to_string(bytes)), std::string::npos) << status.message();
  }
}

// Goal: the three copies move all bytes and no others. Method: there, across and back, through the
// middle of a larger range that must stay as it was.
TEST_P(DeviceTest, CopiesMoveExactlyTheirBytes) {
  const HostSpan from = pinned();
  const HostSpan to = pinned();
  const DeviceSpan first = hbm();
  const DeviceSpan second = hbm();
  std::ranges::copy(counting(kBytes, 1), from.begin());
  std::fill(to.begin(), to.end(), std::byte{9});
  Completion up, across, down;
  device_->copy_to_device(from, first, up);
  wait(up);
  EXPECT_EQ(up.bytes(), kBytes);
  device_->copy_on_device(first.subspan(64, 5000), second.subspan(128, 5000), across);
  wait(across);
  device_->copy_to_host(second.subspan(0, 6000), to.subspan(10, 6000), down);
  wait(down);

  std::vector<std::byte> expected(kBytes, std::byte{9});
  std::fill_n(expected.begin() + 10, 6000, std::byte{0});
  std::copy_n(from.begin() + 64, 5000, expected.begin() + 10 + 128);
  EXPECT_TRUE(std::ranges::equal(to, expected));
}

// Goal: an operation is pending until poll(), and delivered once; any number may be in flight.
// Method: 200 copies and a fence, counted.
TEST_P(DeviceTest, DeliversFromPollOnce) {
  const HostSpan host = pinned(200 * 64);
  const DeviceSpan device = hbm(200 * 64);
  std::ranges::copy(counting(200 * 64, 5), host.begin());
  std::deque<Completion> completions(201);
  for (uint64_t i = 0; i < 200; ++i) {
    device_->copy_to_device(host.subspan(i * 64, 64), device.subspan(i * 64, 64), completions[i]);
  }
  device_->fence(Stream{0}, completions[200]);
  for (const Completion& completion : completions) EXPECT_TRUE(completion.pending());
  uint32_t delivered = 0;
  for (int polls = 0; polls < 10'000'000 && delivered < 201; ++polls) delivered += device_->poll();
  EXPECT_EQ(delivered, 201u);
  EXPECT_EQ(device_->poll(), 0u);
  for (const Completion& completion : completions) EXPECT_TRUE(completion.status().ok());

  const HostSpan back = pinned(200 * 64);
  Completion down;
  device_->copy_to_host(device, back, down);
  wait(down);
  EXPECT_TRUE(std::ranges::equal(back, host));
}

// Goal: host_view, where there is one, is the very memory. Method: write through it, read by a
// copy.
TEST_P(DeviceTest, HostViewIsTheMemory) {
  const DeviceSpan device = hbm(64);
  const HostSpan view = device_->host_view(device);
  if (view.empty()) GTEST_SKIP() << "the CPU cannot address this device's memory";
  ASSERT_EQ(view.size(), 64u);
  std::fill(view.begin(), view.end(), std::byte{7});
  const HostSpan host = pinned(64);
  Completion down;
  device_->copy_to_host(device, host, down);
  wait(down);
  EXPECT_EQ(host[63], std::byte{7});
}

// Goal: unequal sizes and host memory that is not pinned are our mistakes. Method: one death each.
TEST_P(DeviceTest, ChecksSizesAndPinning) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const HostSpan host = pinned(64);
  const DeviceSpan device = hbm(64);
  std::vector<std::byte> pageable(64);
  Completion completion;
  EXPECT_DEATH(device_->copy_to_device(host.first(32), device, completion), "check failed");
  EXPECT_DEATH(device_->copy_to_device(pageable, device, completion), "check failed");
  EXPECT_DEATH(device_->copy_to_host(device, pageable, completion), "check failed");
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, testing::ValuesIn(kDeviceRows),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace zoffload
