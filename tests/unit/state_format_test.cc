// Goal: a state format's name and bytes are what the user was told. Method: the table of names both
// ways; bytes per element of every format, scales of int8 included.
#include "core/base/state_format.h"

#include <gtest/gtest.h>

namespace zoffload {
namespace {

TEST(StateFormat, NamesGoBothWays) {
  for (const std::string_view name : state_format_names()) {
    const auto format = state_format_named(name);
    ASSERT_TRUE(format.ok()) << format.status().to_string();
    EXPECT_EQ(state_format_name(*format), name);
  }
  const auto unknown = state_format_named("fp16");
  EXPECT_EQ(unknown.status().code(), Code::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("split+bf16"), std::string::npos);
}

TEST(StateFormat, BytesOfAMoment) {
  EXPECT_EQ(moment_bytes(MomentFormat::kFloat32, 4096), 16384u);
  EXPECT_EQ(moment_bytes(MomentFormat::kBFloat16, 4096), 8192u);
  EXPECT_EQ(moment_bytes(MomentFormat::kInt8, 4096), 4096u + 32 * 4);
}

}  // namespace
}  // namespace zoffload
