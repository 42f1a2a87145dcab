#include <gtest/gtest.h>

#include "bench/value_text.h"

namespace zoffload::bench {
namespace {

// Goal: the unit moves from the key to the value. Method: one key of each unit.
TEST(BenchValueText, UnitsMoveToTheValue) {
  EXPECT_EQ(params_text({{"block_size_bytes", 1 << 20}, {"queue_depth", 8}}),
            "block size 1 MiB, queue depth 8");
  EXPECT_EQ(params_text({{"step_seconds", 1.5}, {"wait_ns", 85000}, {"direct", true}}),
            "step 1.50 s, wait 85 us, direct yes");
  EXPECT_EQ(value_text("read_bytes_per_s", Json(3 << 20)), "3.00 MiB/s (3.15 MB/s)");
  EXPECT_EQ(value_text("numel_per_s", Json(1.25e9)), "1.25 G/s");
  EXPECT_EQ(value_text("numel_per_s", Json(250)), "250 /s");
  EXPECT_EQ(value_text("change_percent", Json(-5.263)), "-5.3 %");
  EXPECT_EQ(value_text("share_of_bound", Json(0.985)), "98.5 %");
  EXPECT_EQ(key_text("share_of_bound"), "share of bound");
  EXPECT_EQ(params_text({{"written_bytes_per_step", 3 << 20}}), "written per step 3 MiB");
  EXPECT_EQ(value_text("path", Json({"/a", "/b"})), "/a, /b");
}

// Goal: sizes stay exact where they are round, times have three digits. Method: examples at the
// borders of the units.
TEST(BenchValueText, ShortForms) {
  EXPECT_EQ(short_bytes(640), "640 B");
  EXPECT_EQ(short_bytes(1.5 * (1 << 20)), "1.5 MiB");
  EXPECT_EQ(short_bytes(16.0 * (1 << 30)), "16 GiB");
  EXPECT_EQ(nanoseconds_text(999), "999 ns");
  EXPECT_EQ(nanoseconds_text(1000), "1 us");
  EXPECT_EQ(nanoseconds_text(1234567), "1.23 ms");
  EXPECT_EQ(nanoseconds_text(12.5e9), "12.5 s");
}

// Goal: nested facts become lines whose place can be read, with the unit of the object around them.
// Method: an object with an object, a list of plain values and a list of named objects.
TEST(BenchValueText, LeavesNameTheirPlace) {
  const Json json = {{"memory", {{"total_bytes", 1 << 20}}},
                     {"stall_seconds", {{"load", 1.5}}},
                     {"flags", {"a", "b"}},
                     {"drives", {{{"name", "nvme0n1"}, {"numa_node", 1}}, {{"numa_node", 0}}}},
                     {"missing", nullptr}};
  const Leaves expected = {{"memory / total", "1 MiB"},
                           {"stall / load", "1.50 s"},
                           {"flags", "a, b"},
                           {"drives / nvme0n1 / name", "nvme0n1"},
                           {"drives / nvme0n1 / numa node", "1"},
                           {"drives / 2 / numa node", "0"}};
  EXPECT_EQ(leaves_of(json), expected);
}

// Goal: what tells results apart is found, a missing parameter included. Method: three results.
TEST(BenchValueText, DifferingKeys) {
  const Json a = {{"path", "/a"}, {"depth", 1}};
  const Json b = {{"depth", 2}, {"path", "/a"}};
  const Json c = {{"path", "/a"}, {"depth", 1}, {"engine", "x"}};
  EXPECT_EQ(differing_keys({&a, &b}), std::vector<std::string>{"depth"});
  EXPECT_EQ(differing_keys({&a, &c}), std::vector<std::string>{"engine"});
  EXPECT_TRUE(differing_keys({}).empty());
}

}  // namespace
}  // namespace zoffload::bench
