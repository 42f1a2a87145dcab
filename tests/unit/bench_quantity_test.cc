#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "bench/quantity.h"

namespace zoffload::bench {
namespace {

// Goal: amounts mean what the help says. Method: tables of good and bad texts.
TEST(Quantity, Sizes) {
  const std::vector<std::pair<const char*, uint64_t>> good = {
      {"4096", 4096},   {"1K", 1024},       {"1k", 1024},        {"2M", 2 << 20},
      {"1 G", 1 << 30}, {"1MB", 1'000'000}, {"1.5MiB", 3 << 19}, {"1T", uint64_t{1} << 40}};
  for (const auto& [text, bytes] : good) {
    ASSERT_TRUE(parse_size(text).ok()) << text;
    EXPECT_EQ(*parse_size(text), bytes) << text;
  }
  for (const char* text : {"", "0", "0K", "K", "-1", "1KK", "1P", "1e3", "8388608T", "1,2"}) {
    const auto parsed = parse_size(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("'" + std::string(text) + "'"), std::string::npos);
  }
}

TEST(Quantity, Times) {
  const std::vector<std::pair<const char*, double>> good = {
      {"250ms", 0.25}, {"10s", 10}, {"2m", 120}, {"1.5", 1.5}, {"0", 0}, {"3 s", 3}};
  for (const auto& [text, seconds] : good) {
    ASSERT_TRUE(parse_duration(text).ok()) << text;
    EXPECT_DOUBLE_EQ(*parse_duration(text), seconds) << text;
  }
  for (const char* text :
       {"", "s", "-1s", "1h", "1us", "nan", "inf", "1e3", "1e99s", "99999999999"})
    EXPECT_FALSE(parse_duration(text).ok()) << text;
}

TEST(Quantity, Rates) {
  EXPECT_DOUBLE_EQ(*parse_rate("3GiB/s"), 3.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(*parse_rate("500MB"), 5e8);
  for (const char* text : {"", "/s", "0/s", "fast", "3GiB/m"}) EXPECT_FALSE(parse_rate(text).ok());
  EXPECT_EQ(format_rate(3.21 * (1 << 30)), "3.21 GiB/s (3.45 GB/s)");
  EXPECT_EQ(format_rate(5e6), "4.77 MiB/s (5.00 MB/s)");
  EXPECT_EQ(format_rate(0), "0.00 KiB/s (0.00 kB/s)");
}

TEST(Quantity, Percentages) {
  EXPECT_DOUBLE_EQ(*parse_percent("5%"), 0.05);
  EXPECT_DOUBLE_EQ(*parse_percent("12.5"), 0.125);
  for (const char* text : {"", "%", "-5%", "5 percent"}) EXPECT_FALSE(parse_percent(text).ok());
}

// Goal: a list has every entry, and one bad entry refuses it. Method: lists of counts.
TEST(Quantity, Lists) {
  EXPECT_EQ(*parse_list<uint32_t>("8", parse_count), std::vector<uint32_t>({8}));
  EXPECT_EQ(*parse_list<uint32_t>("1,8,32", parse_count), std::vector<uint32_t>({1, 8, 32}));
  for (const char* text : {"", ",", "8,", ",8", "8,,9", "8,x", "8 9", "0", "1000001"}) {
    EXPECT_FALSE(parse_list<uint32_t>(text, parse_count).ok()) << text;
  }
}

// Goal: what is shown can be typed again. Method: there and back.
TEST(Quantity, ExactSizesAreReadBack) {
  EXPECT_EQ(format_exact(uint64_t{4} << 30), "4GiB");
  EXPECT_EQ(format_exact(256 << 10), "256KiB");
  for (uint64_t bytes : {uint64_t{1}, uint64_t{1000}, uint64_t{4096}, uint64_t{3} << 41}) {
    EXPECT_EQ(*parse_size(format_exact(bytes)), bytes);
  }
}

}  // namespace
}  // namespace zoffload::bench
