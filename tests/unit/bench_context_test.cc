#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "bench/context.h"
#include "bench/program.h"
#include "bench/progress.h"

namespace zoffload::bench {
namespace {

struct Rig {
  Options options;
  Document document;
  Progress progress{Progress::Style::kNone};
};

// Goal: the budget of writes is granted in whole units and never exceeded, whoever asks. Method:
// four threads ask until they get nothing.
TEST(Context, GrantsTheWriteBudgetAndNoMore) {
  Rig rig;
  rig.options.max_write_bytes = 1'000'000;
  Context context(rig.options, rig.document, rig.progress);
  std::vector<uint64_t> granted(4);
  std::vector<std::thread> threads;
  for (uint64_t& sum : granted) {
    threads.emplace_back([&]() {
      while (const uint64_t bytes = context.may_write(4096, 4096)) sum += bytes;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted[0] + granted[1] + granted[2] + granted[3], 1'000'000 / 4096 * 4096);
  EXPECT_EQ(context.written_bytes(), 1'000'000 / 4096 * 4096);
  EXPECT_EQ(context.stop(), Stop::kWriteBudget);
}

// Goal: a partial grant is a multiple of the unit and says stop. Method: ask for more than is left.
TEST(Context, RoundsAGrantDown) {
  Rig rig;
  rig.options.max_write_bytes = 10'000;
  Context context(rig.options, rig.document, rig.progress);
  EXPECT_EQ(context.may_write(4096, 4096), 4096u);
  EXPECT_EQ(context.stop(), Stop::kNone);
  EXPECT_EQ(context.may_write(3 * 4096, 4096), 4096u);
  EXPECT_EQ(context.stop(), Stop::kWriteBudget);
  EXPECT_EQ(context.may_write(100, 100), 100u);  // what still fits is granted
}

// Goal: without a limit everything is granted, and counted. Method: ask for much.
TEST(Context, CountsWithoutALimit) {
  Rig rig;
  Context context(rig.options, rig.document, rig.progress);
  EXPECT_EQ(context.may_write(uint64_t{1} << 50, 4096), uint64_t{1} << 50);
  EXPECT_EQ(context.written_bytes(), uint64_t{1} << 50);
  EXPECT_EQ(context.stop(), Stop::kNone);
}

// Goal: warnings reach the document once each. Method: say one twice.
TEST(Context, KeepsWarningsOnce) {
  Rig rig;
  Context context(rig.options, rig.document, rig.progress);
  ::testing::internal::CaptureStderr();
  for (const char* sentence : {"a", "b", "a"}) context.warn(sentence);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: a\nwarning: b\n");
  EXPECT_EQ(rig.document.summary["warnings"], Json({"a", "b"}));
}

// Goal: a command that a budget ends says which, and has the code of a part. Method: every budget,
// and none.
TEST(Context, SaysWhatEndsACommand) {
  Rig rig;
  Context context(rig.options, rig.document, rig.progress);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(context.end(Stop::kNone), ExitCode::kDone);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  for (const auto& [stop, flag] :
       {std::pair(Stop::kTimeBudget, "--budget"), {Stop::kWriteBudget, "--max-write"}}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(context.end(stop), ExitCode::kPartial);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              std::string("warning: cut short by ") + flag + ": a larger one would finish it\n");
  }
}

// Goal: DeepSpeed's spellings become ours, values stay. Method: a command line of both.
TEST(Program, NormalizesDeepSpeedSpellings) {
  const char* const argv[] = {"zoffload-bench", "io", "--block_size=a_b", "--queue_depth", "8_9",
                              "--io_parallel",  "2",  "--nvme_dir=/x_y",  "--label",       "a_b"};
  const std::vector<std::string> wanted = {
      "zoffload-bench", "io", "--block-size=a_b", "--queue-depth", "8_9",
      "--workers",      "2",  "--path=/x_y",      "--label",       "a_b"};
  EXPECT_EQ(normalize_arguments(static_cast<int>(std::size(argv)), argv), wanted);
}

}  // namespace
}  // namespace zoffload::bench
