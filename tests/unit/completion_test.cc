#include "core/ports/completion.h"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

namespace zoffload {
namespace {

static_assert(!std::is_copy_constructible_v<Completion>);
static_assert(!std::is_move_constructible_v<Completion>);

// Goal: idle, pending, done, and round again; the second result is not the first. Method: one
// operation that fails, then one that ends well.
TEST(Completion, ReportsOneOperationAfterTheOther) {
  Completion completion;
  EXPECT_FALSE(completion.pending());
  EXPECT_FALSE(completion.done());
  completion.start();
  EXPECT_TRUE(completion.pending());
  EXPECT_FALSE(completion.done());
  completion.finish(Status(Code::kIoError, "gone"), 512);
  EXPECT_TRUE(completion.done());
  EXPECT_FALSE(completion.pending());
  EXPECT_EQ(completion.status().code(), Code::kIoError);
  EXPECT_EQ(completion.bytes(), 512u);
  completion.start();
  completion.finish(Status());
  EXPECT_TRUE(completion.status().ok());
  EXPECT_EQ(completion.bytes(), 0u);
}

// Goal: the classic lifetime faults show at once. Method: each misuse in a process of its own.
TEST(CompletionDeathTest, Misuse) {
  Completion idle;
  EXPECT_DEATH(static_cast<void>(idle.status()), "done\\(\\)");
  EXPECT_DEATH(static_cast<void>(idle.bytes()), "done\\(\\)");
  EXPECT_DEATH(idle.finish(Status()), "State::kPending");
  EXPECT_DEATH(
      {
        idle.start();
        idle.start();
      },
      "State::kPending");
  EXPECT_DEATH(
      {
        idle.start();
        static_cast<void>(idle.status());
      },
      "done\\(\\)");
  EXPECT_DEATH(
      {
        idle.start();
        idle.finish(Status());
        idle.finish(Status());
      },
      "State::kPending");
  EXPECT_DEATH(std::make_unique<Completion>()->start(), "State::kPending");  // destroyed in flight
}

}  // namespace
}  // namespace zoffload
