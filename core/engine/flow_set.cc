#include "core/engine/flow_set.h"

#include <algorithm>

namespace zoffload {

void Wait::park(Flow& flow, std::coroutine_handle<> leaf) { flow.park(*this, leaf); }

Flow::Flow(std::string name, Task<Status> task, Completion* done, uint64_t id, uint64_t parent,
           FlowKey key)
    : name_(std::move(name)),
      task_(std::move(task)),
      done_(done),
      id_(id),
      parent_(parent),
      key_(key),
      leaf_(task_.handle()) {
  task_.handle().promise().flow = this;
  if (done_ != nullptr) done_->start();
}

void Flow::resume() {
  ZO_CHECK(!finished());
  wait_ = nullptr;
  leaf_.resume();
  ZO_CHECK(finished() || wait_ != nullptr);
}

Status Flow::take_status() {
  ZO_CHECK(finished());
  return std::move(*task_.handle().promise().value);
}

void Flow::park(Wait& wait, std::coroutine_handle<> leaf) {
  wait_ = &wait;
  leaf_ = leaf;
}

std::string Flow::describe() const {
  return name_ +
         (wait_ == nullptr ? std::string(": about to run") : ": waits for " + wait_->what());
}

void FlowSet::spawn(std::string name, Task<Status> task, Completion* done, FlowKey key) {
  const uint64_t parent = current_ == nullptr ? 0 : current_->id();
  flows_.push_back(std::make_unique<Flow>(std::move(name), std::move(task), done, ++spawned_count_,
                                          parent, key));
  ++alive_count_;
  count_max_ = std::max(count_max_, count());
}

uint32_t FlowSet::tick() {
  uint32_t resumed = 0;
  bool any_finished = false;
  for (size_t i = 0; i < flows_.size(); ++i) {  // grows while it runs
    Flow& flow = *flows_[i];
    if (!flow.ready()) continue;
    current_ = &flow;
    flow.resume();
    current_ = nullptr;
    ++resumed;
    if (flow.finished()) {
      finish(flow);
      any_finished = true;
    }
  }
  if (any_finished) std::erase_if(flows_, [](const auto& flow) { return flow->finished(); });
  return resumed;
}

void FlowSet::finish(Flow& flow) {
  --alive_count_;
  const Status status = flow.take_status().within(flow.name());
  if (!status.ok()) failed_(status);
  if (flow.done() != nullptr) flow.done()->finish(status);
}

std::string FlowSet::describe(uint32_t lines_max) const {
  std::string text;
  const uint32_t shown = std::min(lines_max, count());
  for (uint32_t i = 0; i < shown; ++i) text += "\n  " + flows_[i]->describe();
  if (count() > shown) text += "\n  ... and " + std::to_string(count() - shown) + " more";
  return text;
}

}  // namespace zoffload
