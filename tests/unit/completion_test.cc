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

class Counting final : public CompletionObserver {
 public:
  void moved(uint32_t ticket) override { moved_sum += ticket; }
  void finished(uint32_t ticket) override { finished_sum += ticket; }
  uint32_t moved_sum = 0;
  uint32_t finished_sum = 0;
};

// Goal: an observer hears of one operation, each end once, and of none after it. Method: an
// operation that is observed, and one more on the same completion.
TEST(Completion, IsObservedForOneOperation) {
  Completion completion;
  Counting counting;
  completion.start();
  completion.observe(counting, 3);
  completion.note_moved();
  completion.note_moved();
  EXPECT_EQ(counting.moved_sum, 3u);
  EXPECT_EQ(counting.finished_sum, 0u);
  completion.finish(Status());
  EXPECT_EQ(counting.finished_sum, 3u);
  EXPECT_EQ(completion.ticket(), 0u);
  completion.start();
  EXPECT_FALSE(completion.has_moved());
  completion.note_moved();
  completion.finish(Status());
  EXPECT_EQ(counting.moved_sum, 3u);
  EXPECT_EQ(counting.finished_sum, 3u);
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
