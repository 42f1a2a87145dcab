#include "cuda/host_device.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace zoffload {
namespace {

// Goal: memory starts at a huge-page boundary, however small the piece. Method: odd sizes.
TEST(HostDeviceTest, AlignsToHugePages) {
  HostDevice device;
  for (uint64_t bytes : {1u, 4097u, 3u << 20}) {
    const HostSpan memory = device.allocate_pinned(bytes).value();
    EXPECT_EQ(memory.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % (2u << 20), 0u);
  }
}

// Goal: a forked child that destroys its copy, even in the middle of a copy, harms neither itself
// nor the parent. Method: do so, then use the parent's memory.
TEST(HostDeviceTest, ForkedChildFreesNothing) {
  auto device = std::make_unique<HostDevice>();
  const HostSpan host = device->allocate_pinned(4096).value();
  const DeviceSpan hbm = device->allocate_hbm(4096).value();
  host[7] = std::byte{7};
  Completion copied;
  device->copy_to_device(host, hbm, copied);
  const pid_t child = fork();
  if (child == 0) {
    device.reset();
    _exit(0);
  }
  int state = -1;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
  EXPECT_EQ(device->poll(), 1u);
  EXPECT_EQ(device->host_view(hbm)[7], std::byte{7});
}

}  // namespace
}  // namespace zoffload
