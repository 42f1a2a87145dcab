// The table behind the IoQueue suite. A row opens one implementation; whoever has one adds a row
// and instantiates IoQueueTest with it: the suite itself (io_queue_test.cc) names no
// implementation.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "core/ports/io_queue.h"
#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::test {

struct OpenedQueue {
  std::unique_ptr<IoQueue> queue;
  Pump pump;         // lets time pass; called when poll() delivered nothing
  std::string skip;  // not empty: this machine has no such queue, and why
};

struct IoQueueRow {
  std::string name;
  std::function<OpenedQueue()> open;
};

inline void PrintTo(const IoQueueRow& row, std::ostream* out) { *out << row.name; }

inline std::string row_name(const testing::TestParamInfo<IoQueueRow>& info) {
  return info.param.name;
}

class IoQueueTest : public testing::TestWithParam<IoQueueRow> {
 protected:
  void SetUp() override {
    OpenedQueue opened = GetParam().open();
    if (!opened.skip.empty()) GTEST_SKIP() << opened.skip;
    queue_ = std::move(opened.queue);
    pump_ = std::move(opened.pump);
  }

  FileId open_file(const std::string& name, uint64_t bytes) {
    const auto file = queue_->open(folder_.file(name), bytes);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? *file : FileId{0};
  }

  TempFolder folder_;
  std::unique_ptr<IoQueue> queue_;
  Pump pump_;
};

}  // namespace zoffload::test
