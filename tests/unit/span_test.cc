#include "core/base/span.h"

#include <gtest/gtest.h>

#include <array>
#include <type_traits>

namespace zoffload {
namespace {

static_assert(!std::is_convertible_v<DeviceSpan, HostSpan>);
static_assert(!std::is_convertible_v<HostSpan, DeviceSpan>);

// Goal: a part of a device span is where arithmetic says. Method: parts up to the very end.
TEST(DeviceSpan, Subspan) {
  const DeviceSpan span(0x1000, 100);
  EXPECT_FALSE(span.empty());
  const DeviceSpan part = span.subspan(10, 90);
  EXPECT_EQ(part.address(), 0x100au);
  EXPECT_EQ(part.bytes(), 90u);
  EXPECT_TRUE(span.subspan(100, 0).empty());
  EXPECT_TRUE(DeviceSpan().empty());
}

// Goal: a part that is not inside is our mistake. Method: just too far, and sums that overflow.
TEST(DeviceSpanDeathTest, OutOfBounds) {
  const DeviceSpan span(0x1000, 100);
  EXPECT_DEATH(static_cast<void>(span.subspan(101, 0)), "offset <= bytes_");
  EXPECT_DEATH(static_cast<void>(span.subspan(10, 91)), "bytes <= bytes_ - offset");
  EXPECT_DEATH(static_cast<void>(span.subspan(10, ~uint64_t{0} - 5)), "bytes <= bytes_ - offset");
}

// Goal: bytes seen as elements are the same bytes, const or not. Method: write through one view.
TEST(Elements, SeesTheSameBytes) {
  std::array<float, 4> values = {1, 2, 3, 4};
  const HostSpan bytes = std::as_writable_bytes(std::span(values));
  const std::span<float> floats = elements<float>(bytes);
  ASSERT_EQ(floats.size(), 4u);
  floats[3] = 9;
  EXPECT_EQ(values[3], 9);
  const std::span<const float> read_only = elements<float>(ConstHostSpan(bytes));
  EXPECT_EQ(read_only[3], 9);
  EXPECT_EQ(elements<uint16_t>(bytes).size(), 8u);
  EXPECT_TRUE(elements<float>(HostSpan()).empty());
}

// Goal: half an element and a crooked address are our mistakes. Method: both.
TEST(ElementsDeathTest, PartialOrMisaligned) {
  alignas(8) std::array<std::byte, 16> memory{};
  const HostSpan bytes(memory);
  EXPECT_DEATH(static_cast<void>(elements<float>(bytes.first(6))), "sizeof");
  EXPECT_DEATH(static_cast<void>(elements<float>(bytes.subspan(2, 8))), "alignof");
}

}  // namespace
}  // namespace zoffload
