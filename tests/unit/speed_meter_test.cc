#include "tiers/speed_meter.h"

#include <gtest/gtest.h>

namespace zoffload {
namespace {

// Goal: a window has the bytes and the time of the busy stretches, and of nothing else. Method:
// busy, idle, busy again, with numbers of their own.
TEST(SpeedMeter, CountsBusyStretches) {
  SpeedMeter meter(100);
  EXPECT_FALSE(meter.advance(10, 1000, true));   // the start: what came before is not counted
  EXPECT_FALSE(meter.advance(20, 1060, false));  // 60 bytes in 10 ns
  EXPECT_FALSE(meter.advance(500, 1090, true));  // idle: neither the bytes nor the time
  EXPECT_FALSE(meter.advance(510, 1129, true));  // 99 bytes in 20 ns
  const auto window = meter.advance(515, 1200, true);
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->bytes, 170u);
  EXPECT_EQ(window->ns, 25u);
  EXPECT_DOUBLE_EQ(window->bytes_per_s(), 170 * 1e9 / 25);
  EXPECT_FALSE(meter.advance(520, 1299, true));  // the next begins where it ended
  EXPECT_TRUE(meter.advance(525, 1300, true));
}

// Goal: after restart() what was under way before is left out. Method: skip 50 bytes.
TEST(SpeedMeter, RestartSkips) {
  SpeedMeter meter(100);
  meter.advance(0, 0, true);
  EXPECT_FALSE(meter.advance(10, 90, true));
  meter.restart(50);
  EXPECT_FALSE(meter.advance(20, 130, true));  // 40 of the 50
  EXPECT_FALSE(meter.advance(30, 230, true));  // the rest, with what shares its stretch
  const auto window = meter.advance(40, 330, true);
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->bytes, 100u);
  EXPECT_EQ(window->ns, 10u);
}

// Goal: a window never has no time. Method: bytes in no time at all, as a simulated clock may show.
TEST(SpeedMeter, WaitsForTime) {
  SpeedMeter meter(10);
  meter.advance(5, 0, true);
  EXPECT_FALSE(meter.advance(5, 100, true));
  const auto window = meter.advance(6, 100, true);
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->ns, 1u);
}

}  // namespace
}  // namespace zoffload
