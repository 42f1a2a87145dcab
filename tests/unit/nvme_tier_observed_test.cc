// What the NVMe tier tells of its operations while they run: which drive, and when the drive is
// done.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/sim/sim_clock.h"
#include "core/sim/sim_device.h"
#include "core/sim/sim_disk.h"
#include "core/sim/sim_workers.h"
#include "tiers/nvme_tier.h"

namespace zoffload {
namespace {

// Notes when the bytes had moved and when all was over.
class Noted final : public CompletionObserver {
 public:
  explicit Noted(const SimClock& clock) : clock_(clock) {}
  void moved(uint32_t ticket) override {
    EXPECT_EQ(ticket, 5u);
    EXPECT_EQ(moved_ns, 0u);  // once
    moved_ns = clock_.now_ns();
  }
  void finished(uint32_t ticket) override {
    EXPECT_EQ(ticket, 5u);
    finished_ns = clock_.now_ns();
  }
  uint64_t moved_ns = 0;
  uint64_t finished_ns = 0;

 private:
  const SimClock& clock_;
};

struct NvmeTierObserved : testing::Test {
  void SetUp() override {
    const std::vector<NvmePath> paths = {{&disks[0], "a", 2.0, "/a"}, {&disks[1], "b", 1.0, "/b"}};
    tier = std::move(
        NvmeTier::open(paths, 64 * kPageBytes, memory, clock, options, {}, &workers).value());
  }
  void finish(const Completion& completion) {
    while (!completion.done()) {
      if (disks[0].poll() + workers.poll() + tier->poll() == 0) clock.doze(1'000'000);
    }
  }

  SimClock clock;
  SimDevice device{clock, SimDeviceOptions{}, 1, nullptr};
  SimIoQueue disks[2] = {{clock, SimDiskOptions{}, SimDiskFaults{}, 2, nullptr, "a"},
                         {clock, SimDiskOptions{}, SimDiskFaults{}, 3, nullptr, "b"}};
  SimWorkers workers{clock, SimWorkersOptions{}, 4, nullptr};
  NvmeOptions options{.block_bytes = 4 * kPageBytes, .extent_bytes_max = 8 * kPageBytes};
  HostSpan memory = device.allocate_pinned(8 * kPageBytes).value();
  std::unique_ptr<NvmeTier> tier;
};

// Goal: the books can tell the drive's part of a load from that of the sum that follows, and know
// the drive. Method: store and load an extent on each path; the sum of a load takes time after the
// bytes have moved.
TEST_F(NvmeTierObserved, ALoadTellsWhenTheDriveIsDone) {
  std::set<uint32_t> seen;
  for (int i = 0; i < 4; ++i) {
    const Extent extent = tier->allocate(8 * kPageBytes).value();
    seen.insert(tier->path_index(extent));
    Completion store;
    tier->store(memory, extent, store);
    EXPECT_EQ(tier->path_of(extent), tier->path_index(extent));
    finish(store);
    Completion load;
    Noted noted(clock);
    tier->load(extent, memory, Urgency::kDemand, load);
    load.observe(noted, 5);
    EXPECT_EQ(load.ticket(), 5u);
    finish(load);
    EXPECT_EQ(load.ticket(), 0u);
    EXPECT_GT(noted.moved_ns, 0u);
    EXPECT_GT(noted.finished_ns, noted.moved_ns);
  }
  EXPECT_EQ(seen.size(), 2u);
}

// Goal: what was never stored is no work of the drive. Method: its load has moved at once.
TEST_F(NvmeTierObserved, ZerosAreNotTheDrives) {
  const Extent extent = tier->allocate(kPageBytes).value();
  Completion load;
  tier->load(extent, memory.first(kPageBytes), Urgency::kDemand, load);
  EXPECT_TRUE(load.has_moved());
  finish(load);
}

// Goal: a report can name the drives and what was written before the first step. Method: two paths.
TEST_F(NvmeTierObserved, PathsAreNamed) {
  const std::vector<TierPath> paths = tier->paths();
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0].name, "/a");
  EXPECT_EQ(paths[1].name, "/b");
  const std::vector<NvmePath> as_opened = {{&disks[0], "a", 2.0, "/a"},
                                           {&disks[1], "b", 1.0, "/b"}};
  const auto bytes = NvmeTier::file_bytes(as_opened, 64 * kPageBytes, options);
  EXPECT_EQ(paths[0].first_written_bytes, bytes[0]);
  EXPECT_EQ(paths[1].first_written_bytes, bytes[1]);
}

}  // namespace
}  // namespace zoffload
