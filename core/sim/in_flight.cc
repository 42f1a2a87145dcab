#include "core/sim/in_flight.h"

#include <utility>

#include "core/base/check.h"

namespace zoffload {

InFlight::InFlight(std::string port, SimClock& clock, Trace* trace)
    : port_(std::move(port)), clock_(clock), trace_(trace) {}

InFlight::~InFlight() {
  ZO_CHECK(count() == 0);
  clock_.forget(this);
}

InFlight::Id InFlight::start(std::string_view what, Completion& completion) {
  completion.start();
  const Id id = next_id_++;
  running_.emplace(id, &completion);
  if (trace_ != nullptr) record("start " + std::to_string(id) + " " + std::string(what));
  return id;
}

void InFlight::end(Id id, Status status, uint64_t bytes) {
  const auto found = running_.find(id);
  ZO_CHECK(found != running_.end());
  if (trace_ != nullptr) {
    record("end " + std::to_string(id) + " " + std::to_string(bytes) + " " + status.to_string());
  }
  ended_.push_back({found->second, std::move(status), bytes});
  running_.erase(found);
}

void InFlight::end_all(const Status& status) {
  while (!running_.empty()) end(running_.begin()->first, status);
}

uint32_t InFlight::count() const { return static_cast<uint32_t>(running_.size() + ended_.size()); }

uint32_t InFlight::poll() {
  const auto delivered = static_cast<uint32_t>(ended_.size());
  for (Ended& ended : ended_) ended.completion->finish(std::move(ended.status), ended.bytes);
  ended_.clear();
  return delivered;
}

void InFlight::at(uint64_t when_ns, std::function<void()> event) {
  clock_.at(when_ns, std::move(event), this);
}

void InFlight::record(std::string_view line) {
  if (trace_ != nullptr) trace_->record(clock_.now_ns(), port_ + " " + std::string(line));
}

}  // namespace zoffload
