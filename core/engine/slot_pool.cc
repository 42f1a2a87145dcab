#include "core/engine/slot_pool.h"

#include <algorithm>

namespace zoffload {

SlotPool::SlotPool(std::string name, uint32_t count, const Failure& failure)
    : name_(std::move(name)), count_(count), failure_(failure) {
  for (uint32_t i = count; i > 0; --i) free_.push_back(i - 1);
}

SlotPool::Acquire SlotPool::acquire() {
  ZO_CHECK(count_ > 0);
  return Acquire(*this);
}

void SlotPool::give_back(uint32_t index) {
  ZO_CHECK(index < count_);
  ZO_CHECK(free_.size() < count_);
  free_.push_back(index);
}

SlotPool::Acquire::~Acquire() { std::erase(pool_.queue_, this); }

bool SlotPool::Acquire::ready() {
  if (pool_.failure_.happened()) return true;
  return !pool_.free_.empty() && pool_.queue_.front() == this;
}

std::string SlotPool::Acquire::what() const {
  return "slot of pool " + pool_.name_ + " (" + std::to_string(pool_.lent_count()) + " of " +
         std::to_string(pool_.count_) + " lent)";
}

Result<SlotPool::Slot> SlotPool::Acquire::await_resume() {
  std::erase(pool_.queue_, this);
  if (pool_.failure_.happened()) return pool_.failure_.status();
  const uint32_t index = pool_.free_.back();
  pool_.free_.pop_back();
  pool_.lent_count_max_ = std::max(pool_.lent_count_max_, pool_.lent_count());
  return Slot(&pool_, index);
}

}  // namespace zoffload
