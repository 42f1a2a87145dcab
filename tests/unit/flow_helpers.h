// What tests of the coroutine runtime share: a door at which flows wait, and a diary of what ran.
#pragma once

#include <string>
#include <vector>

#include "core/engine/flow_set.h"
#include "core/engine/task.h"

namespace zoffload {

// co_await gate: until the test opens it.
class Gate : public Wait {
 public:
  bool ready() override { return open; }
  std::string what() const override { return "the gate"; }
  void await_resume() const {}

  bool open = false;
};

using Diary = std::vector<std::string>;

inline Task<Status> pass(Gate& gate, Diary& diary, std::string name) {
  diary.push_back(name + " starts");
  co_await gate;
  diary.push_back(name + " ends");
  co_return Status();
}

inline Task<Status> end_with(Status status) { co_return status; }

// A flow set that writes down its failures.
struct NotedFlows {
  std::vector<Status> failures;
  FlowSet flows{[this](const Status& status) { failures.push_back(status); }};
};

}  // namespace zoffload
