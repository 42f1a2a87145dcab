#include "cuda/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/conformance/io_queue_helpers.h"

namespace zoffload {
namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// Goal: the tighter of the machine and the cgroup counts; "max" and missing files are no limit.
// Method: files as the kernel writes them.
TEST(AvailableMemory, TheTighterLimitCounts) {
  const test::TempFolder folder;
  const std::string meminfo = folder.file("meminfo");
  write(meminfo, "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    400 kB\nSwap: 0 kB\n");
  EXPECT_EQ(available_memory_bytes(meminfo, folder.path()), 400u * 1024);
  write(folder.file("memory.max"), "300000\n");
  write(folder.file("memory.current"), "100000\n");
  EXPECT_EQ(available_memory_bytes(meminfo, folder.path()), 200000u);
  write(folder.file("memory.stat"), "anon 60000\ninactive_file 30000\nactive_file 10000\n");
  EXPECT_EQ(available_memory_bytes(meminfo, folder.path()), 240000u);
  write(folder.file("memory.current"), "400000\n");
  EXPECT_EQ(available_memory_bytes(meminfo, folder.path()), 0u);
  write(folder.file("memory.max"), "max\n");
  EXPECT_EQ(available_memory_bytes(meminfo, folder.path()), 400u * 1024);
  EXPECT_EQ(available_memory_bytes(folder.file("nothing"), folder.path()), ~uint64_t{0});
}

// Goal: this machine's own files are understood. Method: more than nothing, less than everything.
TEST(AvailableMemory, ThisMachineHasSome) {
  EXPECT_GT(available_memory_bytes(), 1u << 20);
  EXPECT_LT(available_memory_bytes(), ~uint64_t{0});
}

}  // namespace
}  // namespace zoffload
