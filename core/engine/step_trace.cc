#include "core/engine/step_trace.h"

#include <algorithm>

#include "core/base/check.h"

namespace zoffload {

StepTrace::Name::Name(std::string_view first, std::string_view second) {
  for (const std::string_view part : {first, second}) {
    const size_t count = std::min(part.size(), sizeof(text_) - size_);
    std::copy_n(part.begin(), count, text_ + size_);
    size_ = static_cast<uint8_t>(size_ + count);
  }
}

void StepTrace::add(const Event& event) {
  ZO_CHECK(recording_);
  ZO_CHECK(event.end_ns >= event.begin_ns);
  if (event.end_ns < begin_ns_) return;
  if (events_.size() == events_.capacity()) {
    ++dropped_count_;
    return;
  }
  events_.push_back(event);
  events_.back().begin_ns = std::max(event.begin_ns, begin_ns_);
}

}  // namespace zoffload
