// Completions that a flow can wait for: one Operation, or an OperationSet of several at once.
#pragma once

#include <deque>
#include <string>
#include <utility>

#include "core/engine/task.h"
#include "core/ports/completion.h"

namespace zoffload {

// Status status = co_await operation; REQUIRES: given to a port (or to FlowSet::spawn) before.
class Operation : public Completion, public Wait {
 public:
  explicit Operation(const char* what) : what_(what) {}
  bool ready() override { return done(); }
  std::string what() const override { return what_; }
  WaitFor waits_for() const override { return WaitFor::operation(ticket()); }
  Status await_resume() const { return status(); }

 private:
  const char* what_;
};

// Several operations at once. Status first_error = co_await set.all();
class OperationSet {
 public:
  explicit OperationSet(const char* what) : what_(what) {}
  OperationSet(const OperationSet&) = delete;
  OperationSet& operator=(const OperationSet&) = delete;

  Operation& add() { return operations_.emplace_back(what_); }

  class AllDone : public Wait {
   public:
    explicit AllDone(OperationSet& set) : set_(set) {}
    bool ready() override { return set_.all_done(); }
    std::string what() const override {
      const size_t count = set_.operations_.size();
      return std::string(set_.what_) + " (" + std::to_string(count - set_.done_count_) + " of " +
             std::to_string(count) + " left)";
    }
    WaitFor waits_for() const override {
      if (set_.done_count_ == set_.operations_.size()) return {};
      return set_.operations_[set_.done_count_].waits_for();
    }
    Status await_resume() const { return set_.first_error(); }

   private:
    OperationSet& set_;
  };
  AllDone all() { return AllDone(*this); }

 private:
  bool all_done() {
    while (done_count_ < operations_.size() && operations_[done_count_].done()) ++done_count_;
    return done_count_ == operations_.size();
  }
  Status first_error() const {
    for (const Operation& operation : operations_) {
      if (!operation.status().ok()) return operation.status();
    }
    return Status();
  }

  const char* what_;
  std::deque<Operation> operations_;  // never moves an element
  size_t done_count_ = 0;             // of the leading operations that are known to be done
};

}  // namespace zoffload
