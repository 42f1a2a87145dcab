#include "core/plan/parse_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace zoffload {
namespace {

TEST(ParseBytes, UnitsAndLimits) {
  // Goal: amounts mean what people mean by them. Method: tables of good and bad texts.
  const std::vector<std::pair<const char*, uint64_t>> good = {{"0", 0},
                                                              {"4096", 4096},
                                                              {"12 B", 12},
                                                              {"1KB", 1000},
                                                              {"1KiB", 1024},
                                                              {"2GB", 2'000'000'000},
                                                              {"256MiB", 256u << 20},
                                                              {"1.5GiB", 3u << 29},
                                                              {"3 tib", uint64_t{3} << 40},
                                                              {"0.1GB", 100'000'000},
                                                              {"9223372036854775807", INT64_MAX}};
  for (const auto& [text, bytes] : good) {
    const Result<uint64_t> parsed = parse_bytes(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
  for (const char* text :
       {"", "GB", "-1", "1G", "1GBB", "1GX", "1GiX", "1 XB", "1.2.3MB", ".", "1e3", " 1", "1 GB ",
        "1iB", "9223372036854775808", "9000000TiB", "9000000.5TiB", "99999999999999999999"}) {
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  }
}

}  // namespace
}  // namespace zoffload
