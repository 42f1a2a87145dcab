// A fixed number of equal buffers, lent by RAII, granted first come first served. The pool deals in
// indices; whose memory they stand for is the owner's business (SwapManager). How many there are is
// written in the Plan.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/failure.h"
#include "core/engine/task.h"

namespace zoffload {

class SlotPool {
 public:
  // One lent slot; goes back to its pool when it is destroyed.
  class Slot {
   public:
    Slot() = default;
    Slot(SlotPool* pool, uint32_t index) : pool_(pool), index_(index) {}
    Slot(Slot&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_) {}
    Slot& operator=(Slot&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Slot() {
      if (pool_ != nullptr) pool_->give_back(index_);
    }
    bool held() const { return pool_ != nullptr; }
    uint32_t index() const {
      ZO_CHECK(held());
      return index_;
    }

   private:
    SlotPool* pool_ = nullptr;
    uint32_t index_ = 0;
  };

  // Result<Slot> slot = co_await pool.acquire();
  class Acquire : public Wait {
   public:
    explicit Acquire(SlotPool& pool) : pool_(pool) { pool_.queue_.push_back(this); }
    Acquire(const Acquire&) = delete;
    ~Acquire() override;
    bool ready() override;
    std::string what() const override;
    WaitFor waits_for() const override { return WaitFor::leaf(Cause::kSlot); }
    Result<Slot> await_resume();

   private:
    SlotPool& pool_;
  };

  SlotPool(std::string name, uint32_t count, const Failure& failure);
  ~SlotPool() { ZO_CHECK(free_.size() == count_); }  // a leaked slot is a crash, in tests and out
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // The place in the queue is taken here. REQUIRES: count() > 0.
  Acquire acquire();

  uint32_t count() const { return count_; }
  uint32_t lent_count() const { return count_ - static_cast<uint32_t>(free_.size()); }
  uint32_t lent_count_max() const { return lent_count_max_; }  // high-water mark

 private:
  void give_back(uint32_t index);

  const std::string name_;
  const uint32_t count_;
  const Failure& failure_;
  std::vector<uint32_t> free_;
  std::deque<Acquire*> queue_;  // who waits, in order of arrival
  uint32_t lent_count_max_ = 0;
};

}  // namespace zoffload
