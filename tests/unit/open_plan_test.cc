// What open_engine() plans with: resolved_plan() and the settings of the paths that it rests on.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/open.h"
#include "core/path_settings.h"

namespace zoffload {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A request for two paths, of which a profile knows the first.
class ResolvedPlan : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "resolved_plan";
    std::filesystem::create_directories(folder_);
    request_.plan.optimizer = {0, 0, 1};
    request_.plan.subgroup_bytes = 0;
    request_.threads = 3;
    request_.nvme_paths = {folder_ + "/a", folder_ + "/b"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write_profile(uint64_t block_bytes, uint32_t depth) {
    Profile profile;
    profile.host = "here";
    profile.measured = "2026-01-01T00:00:00Z";
    const std::string path = std::filesystem::canonical(folder_).string() + "/a";
    profile.paths = {{path, "io_uring", block_bytes, depth, 1e9, 1e9, 1e9}};
    request_.profile_file = folder_ + "/profile.json";
    std::ofstream(request_.profile_file) << print_profile(profile);
  }

  std::string folder_;
  OpenRequest request_;
};

// Goal: without a profile, each path keeps the default block and depth in flight, and subgroups
// have the default size. Method: the numbers; nothing on NVMe keeps nothing in flight.
TEST_F(ResolvedPlan, Defaults) {
  const PlanRequest plan = resolved_plan(request_);
  EXPECT_EQ(plan.in_flight_bytes, 2 * 32 * kMiB);
  EXPECT_EQ(plan.subgroup_bytes, 16 * kMiB);
  EXPECT_EQ(plan.slot_bytes_max, 512 * kMiB);
  EXPECT_EQ(plan.workers, 3u);
  request_.plan.optimizer = {0, 1, 0};
  EXPECT_EQ(resolved_plan(request_).in_flight_bytes, 0u);
}

// Goal: what the profile found is what is kept in flight, and large blocks make large subgroups.
// Method: a small depth; blocks that four of do not fit into 16 MiB; blocks beyond all bounds.
TEST_F(ResolvedPlan, FollowsTheProfile) {
  write_profile(2 * kMiB, 4);
  EXPECT_EQ(resolved_plan(request_).in_flight_bytes, (8 + 32) * kMiB);
  EXPECT_EQ(resolved_plan(request_).subgroup_bytes, 16 * kMiB);
  write_profile(8 * kMiB, 2);
  EXPECT_EQ(resolved_plan(request_).subgroup_bytes, 32 * kMiB);
  write_profile(64 * kMiB, 16);
  EXPECT_EQ(resolved_plan(request_).subgroup_bytes, 64 * kMiB);
  EXPECT_EQ(resolved_plan(request_).in_flight_bytes, 256 * kMiB);
}

// Goal: the config wins over the profile, and a subgroup size that was asked for stands, whatever
// the slots take. Method: settings beside a profile.
TEST_F(ResolvedPlan, FollowsTheConfig) {
  write_profile(8 * kMiB, 2);
  request_.io_block_bytes = kMiB;
  request_.io_queue_depth = 5;
  request_.plan.subgroup_bytes = 3 * kMiB;
  const PlanRequest plan = resolved_plan(request_);
  EXPECT_EQ(plan.in_flight_bytes, 2 * 5 * kMiB);
  EXPECT_EQ(plan.subgroup_bytes, 3 * kMiB);
  EXPECT_EQ(plan.slot_bytes_max, 0u);
}

// Goal: a profile that cannot be read is open_engine()'s error, not a crash of the plan's. Method:
// none, and nonsense.
TEST_F(ResolvedPlan, LeavesABadProfileToOpen) {
  request_.profile_file = folder_ + "/none.json";
  EXPECT_EQ(resolved_plan(request_).in_flight_bytes, 2 * 32 * kMiB);
  EXPECT_EQ(profile_of(request_).status().message().find("profile: "), 0u);
  std::ofstream(request_.profile_file) << "{";
  EXPECT_EQ(resolved_plan(request_).in_flight_bytes, 2 * 32 * kMiB);
}

}  // namespace
}  // namespace zoffload
