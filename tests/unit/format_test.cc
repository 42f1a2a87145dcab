#include "core/base/format.h"

#include <gtest/gtest.h>

namespace zoffload {
namespace {

// Goal: binary units, three figures or so. Method: both sides of each border.
TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(10 * 1024), "10.0 KiB");
  EXPECT_EQ(format_bytes(uint64_t{1} << 20), "1.00 MiB");
  EXPECT_EQ(format_bytes(uint64_t{80} << 30), "80.0 GiB");
  EXPECT_EQ(format_bytes(uint64_t{3} << 40), "3.00 TiB");
  EXPECT_EQ(format_bytes(uint64_t{5} << 50), "5.00 PiB");
  EXPECT_EQ(format_bytes(uint64_t{5000} << 50), "5000.0 PiB");  // there is no larger unit
}

// Goal: the unit fits the duration. Method: both sides of each border.
TEST(Format, Seconds) {
  EXPECT_EQ(format_seconds(0), "0 us");
  EXPECT_EQ(format_seconds(850e-6), "850 us");
  EXPECT_EQ(format_seconds(1e-3), "1.0 ms");
  EXPECT_EQ(format_seconds(0.25), "250.0 ms");
  EXPECT_EQ(format_seconds(1), "1.00 s");
  EXPECT_EQ(format_seconds(3600), "3600.00 s");
}

}  // namespace
}  // namespace zoffload
