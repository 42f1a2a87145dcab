// The coroutine runtime, second half: the flows that are alive, resumed in spawn order when what
// they wait for is ready. One thread, no locks; which flow runs next is a function of the order of
// completions alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/task.h"
#include "core/ports/completion.h"

namespace zoffload {

// One spawned coroutine. Owned by its FlowSet.
class Flow {
 public:
  // `parent` is the id of the flow that spawned it; 0 for none.
  Flow(std::string name, Task<Status> task, Completion* done, uint64_t id, uint64_t parent,
       FlowKey key);

  bool finished() const { return task_.handle().done(); }
  bool ready() const { return wait_ == nullptr || wait_->ready(); }
  void resume();                 // REQUIRES: ready() and not finished()
  Status take_status();          // REQUIRES: finished()
  std::string describe() const;  // "gather layers.3: waits for turn 7"

  void park(Wait& wait, std::coroutine_handle<> leaf);
  Completion* done() const { return done_; }
  const std::string& name() const { return name_; }
  uint64_t id() const { return id_; }
  uint64_t parent() const { return parent_; }
  const FlowKey& key() const { return key_; }
  const Wait* wait() const { return wait_; }  // null: about to run, or ended

 private:
  std::string name_;
  Task<Status> task_;
  Completion* done_;
  const uint64_t id_;  // from 1 on
  const uint64_t parent_;
  const FlowKey key_;
  Wait* wait_ = nullptr;
  std::coroutine_handle<> leaf_;
};

class FlowSet {
 public:
  // `failed` hears of every flow that ends in error, with the flow's name in front.
  explicit FlowSet(std::function<void(const Status&)> failed) : failed_(std::move(failed)) {}
  ~FlowSet() { ZO_CHECK(flows_.empty()); }
  FlowSet(const FlowSet&) = delete;
  FlowSet& operator=(const FlowSet&) = delete;

  // The flow starts at the next place in spawn order. When it ends, `done` (if any) is finished
  // with its status.
  void spawn(std::string name, Task<Status> task, Completion* done = nullptr, FlowKey key = {});

  // Resumes every flow that is ready, once, in spawn order, those spawned meanwhile included.
  // Returns how many.
  uint32_t tick();

  // For the books. The flow that runs now, null outside of tick(); and the oldest that is parked
  // and satisfies the predicate, null if there is none.
  const Flow* current() const { return current_; }
  template <typename Predicate>
  const Flow* find_parked(Predicate predicate) const {
    for (const auto& flow : flows_) {
      if (flow->wait() != nullptr && predicate(*flow)) return flow.get();
    }
    return nullptr;
  }

  uint32_t count() const { return alive_count_; }  // spawned and not ended
  uint32_t count_max() const { return count_max_; }
  std::string describe(uint32_t lines_max) const;  // what waits for what

 private:
  void finish(Flow& flow);

  std::function<void(const Status&)> failed_;
  std::vector<std::unique_ptr<Flow>> flows_;  // in spawn order
  const Flow* current_ = nullptr;
  uint64_t spawned_count_ = 0;
  uint32_t alive_count_ = 0;
  uint32_t count_max_ = 0;
};

}  // namespace zoffload
