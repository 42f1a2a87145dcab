#include "cuda/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "cuda/host_device.h"
#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::test {
namespace {

constexpr uint64_t kHuge = 2 << 20;
constexpr uint64_t kBase = 0x7f0000000000;  // a huge-page boundary

// Never touched: only its address is looked at.
HostSpan at(uint64_t address, uint64_t bytes) {
  return {reinterpret_cast<std::byte*>(address), bytes};
}

std::string mapping(uint64_t first, uint64_t bytes, uint64_t huge_bytes) {
  char head[96];
  std::snprintf(head, sizeof head, "%lx-%lx rw-p 00000000 00:00 0 \n",
                static_cast<unsigned long>(first), static_cast<unsigned long>(first + bytes));
  return head + ("Size: " + std::to_string(bytes / 1024) + " kB\nAnonHugePages: " +
                 std::to_string(huge_bytes / 1024) + " kB\nVmFlags: rd wr\n");
}

class HugePages : public testing::Test {
 protected:
  std::string written(const std::string& name, const std::string& text) {
    std::ofstream(folder_.file(name)) << text;
    return folder_.file(name);
  }
  TempFolder folder_;
};

// Goal: the share counts what could be huge, over every mapping that the memory lies in. Method: a
// written smaps; memory that is not aligned, that crosses mappings, and that is part of one.
TEST_F(HugePages, ShareIsOfWhatCouldBeHuge) {
  const std::string smaps =
      written("smaps", mapping(0x1000, 4096, 0) + mapping(kBase, 4 * kHuge, 3 * kHuge) +
                           mapping(kBase + 4 * kHuge, 4 * kHuge, 0) +
                           mapping(kBase + 8 * kHuge, kHuge, kHuge));
  EXPECT_DOUBLE_EQ(*huge_page_share(at(kBase, 4 * kHuge), smaps), 0.75);
  EXPECT_DOUBLE_EQ(*huge_page_share(at(kBase, 4 * kHuge + 4096), smaps), 0.75);
  EXPECT_DOUBLE_EQ(*huge_page_share(at(kBase, 8 * kHuge), smaps), 3.0 / 8);
  EXPECT_DOUBLE_EQ(*huge_page_share(at(kBase + kHuge, kHuge), smaps), 0.75);
  EXPECT_DOUBLE_EQ(*huge_page_share(at(kBase + 8 * kHuge, kHuge), smaps), 1.0);
  EXPECT_DOUBLE_EQ(*huge_page_share(at(2 * kBase, kHuge), smaps), 0.0);
}

// Goal: a mapping whose end is less than a huge page is no cause for a warning if all the rest is
// huge. Method: a pool of three huge pages and a part of one, and two of the three.
TEST_F(HugePages, EndOfAMappingCannotBeHuge) {
  const uint64_t bytes = 3 * kHuge + 400 * 4096;
  const std::string all = written("all", mapping(kBase, bytes, 3 * kHuge));
  EXPECT_DOUBLE_EQ(*huge_page_share(at(kBase, bytes), all), 1.0);
  EXPECT_EQ(huge_page_warning(at(kBase, bytes), all), "");
  const std::string some = written("some", mapping(kBase, bytes, 2 * kHuge));
  EXPECT_DOUBLE_EQ(*huge_page_share(at(kBase, bytes), some), 2.0 / 3);
  const std::string early = written("early", mapping(kBase - 4096, kHuge + 4096, kHuge));
  EXPECT_DOUBLE_EQ(*huge_page_share(at(kBase - 4096, kHuge + 4096), early), 1.0);
}

// Goal: no answer, and no warning, where there is nothing to ask. Method: memory without a whole
// huge page, and no such file.
TEST_F(HugePages, NoAnswerIsNoWarning) {
  const std::string smaps = written("smaps", mapping(kBase, 4 * kHuge, 0));
  EXPECT_FALSE(huge_page_share(at(kBase, kHuge - 4096), smaps).has_value());
  EXPECT_FALSE(huge_page_share(at(kBase + 4096, 2 * kHuge - 8192), smaps).has_value());
  EXPECT_FALSE(huge_page_share({}, smaps).has_value());
  EXPECT_EQ(huge_page_warning(at(kBase, kHuge - 4096), smaps), "");
  EXPECT_EQ(huge_page_warning(at(kBase, kHuge), folder_.file("missing")), "");
}

// Goal: the warning names the share and what helps here. Method: both kinds of setting, and the
// border at 95 %.
TEST_F(HugePages, WarningNamesTheRemedy) {
  const std::string half = written("half", mapping(kBase, 100 * kHuge, 50 * kHuge));
  const std::string never = written("never", "always madvise [never]\n");
  const std::string madvise = written("madvise", "always [madvise] never\n");
  const HostSpan memory = at(kBase, 100 * kHuge);
  const std::string forbidden = huge_page_warning(memory, half, never);
  EXPECT_NE(forbidden.find("50 %"), std::string::npos) << forbidden;
  EXPECT_NE(forbidden.find("`echo madvise > " + never + "`"), std::string::npos) << forbidden;
  const std::string fragmented = huge_page_warning(memory, half, madvise);
  EXPECT_NE(fragmented.find("compact_memory"), std::string::npos) << fragmented;

  const std::string enough = written("enough", mapping(kBase, 100 * kHuge, 95 * kHuge));
  const std::string short_of = written("short", mapping(kBase, 100 * kHuge, 94 * kHuge));
  EXPECT_EQ(huge_page_warning(memory, enough, never), "");
  EXPECT_NE(huge_page_warning(memory, short_of, never), "");
}

// Goal: the kernel's own file is understood. Method: pinned memory, and plain pages that are told
// to stay small, counted in this process.
TEST_F(HugePages, CountsThisProcess) {
  const AlignedMemory small(8 * kHuge);
  ASSERT_EQ(madvise(small.span().data(), 8 * kHuge, MADV_NOHUGEPAGE), 0);
  std::fill(small.span().begin(), small.span().end(), std::byte{1});
  EXPECT_DOUBLE_EQ(*huge_page_share(small.span()), 0.0);
  EXPECT_NE(huge_page_warning(small.span()), "");

  std::string enabled;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), enabled);
  if (enabled.empty() || enabled.find("[never]") != std::string::npos) {
    GTEST_SKIP() << "no transparent huge pages: " << enabled;
  }
  HostDevice device;
  const HostSpan pinned = device.allocate_pinned(8 * kHuge).value();
  const std::optional<double> share = huge_page_share(pinned);
  if (share == 0.0) GTEST_SKIP() << "memory is too fragmented for a huge page";
  EXPECT_GT(share, 0.0);
  EXPECT_LE(share, 1.0);
}

}  // namespace
}  // namespace zoffload::test
