// A program that answers lines, and what happens when it does not.
#include <gtest/gtest.h>

#include "bench/line_child.h"

namespace zoffload::bench {
namespace {

std::unique_ptr<LineChild> must_start(const char* script) {
  auto child = LineChild::start({"sh", "-c", script});
  EXPECT_TRUE(child.ok()) << child.status().to_string();
  return std::move(*child);
}

// Goal: a line comes back for each line, whole, also where two arrive at once. Method: a script
// that answers twice to the first line.
TEST(LineChild, AnswersLines) {
  const auto child = must_start("read a; printf 'one %s\\ntwo\\n' $a; read b; echo $b");
  ASSERT_TRUE(child->send("x"));
  EXPECT_EQ(*child->receive({}), "one x");
  EXPECT_EQ(*child->receive({}), "two");
  ASSERT_TRUE(child->send("y"));
  EXPECT_EQ(*child->receive({}), "y");
}

// Goal: a program that ends is an error that says what it said, not a signal. Method: one that
// ends at once; then we write to it.
TEST(LineChild, SaysWhyItEnded) {
  const auto child = must_start("echo the reason >&2");
  const auto line = child->receive({});
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(line.status().code(), Code::kUnsupported);
  EXPECT_NE(line.status().message().find("the reason"), std::string::npos);
  EXPECT_FALSE(child->send("anyone?"));
}

// Goal: waiting ends when told so, and a program that never ends is ended. Method: `sleep`.
TEST(LineChild, StopsWaiting) {
  const auto child = must_start("exec sleep 600");
  const auto line = child->receive([] { return true; });
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(*line, "");
}

// Goal: what is not there is an error that names it. Method: no such program.
TEST(LineChild, NamesWhatIsNotThere) {
  const auto child = LineChild::start({"/no/such/program"});
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.status().code(), Code::kUnsupported);
  EXPECT_NE(child.status().message().find("/no/such/program"), std::string::npos);
}

}  // namespace
}  // namespace zoffload::bench
