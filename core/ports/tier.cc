#include "core/ports/tier.h"

#include <string>

#include "core/base/check.h"
#include "core/base/format.h"

namespace zoffload {

Tier::~Tier() = default;

Result<Extent> Tier::allocate(uint64_t bytes) {
  ZO_CHECK(bytes > 0);
  const uint64_t padded = round_up(bytes, kPageBytes);
  const uint64_t free_bytes = capacity_bytes_ - used_bytes_;
  if (padded > free_bytes) {
    return Status(Code::kOutOfSpace, std::string(tier_name(kind_)) + " tier is full: " +
                                         format_bytes(padded - free_bytes) + " missing");
  }
  const Extent extent{used_bytes_, bytes};
  used_bytes_ += padded;
  place(extent);
  return extent;
}

void Tier::check_span(Extent extent, HostSpan memory) const {
  const uint64_t padded = round_up(extent.bytes, kPageBytes);
  ZO_CHECK(extent.bytes > 0);
  ZO_CHECK(extent.offset % kPageBytes == 0);
  ZO_CHECK(extent.offset + padded <= used_bytes_);
  ZO_CHECK(memory.size() == padded);
  ZO_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kPageBytes == 0);
}

void Tier::load(Extent from, HostSpan to, Urgency urgency, Completion& completion) {
  check_span(from, to);
  loaded_bytes_ += from.bytes;
  if (urgency == Urgency::kDemand) demanded_bytes_ += from.bytes;
  do_load(from, to, urgency, completion);
}

void Tier::store(HostSpan from, Extent to, Completion& completion) {
  check_span(to, from);
  stored_bytes_ += to.bytes;
  do_store(from, to, completion);
}

}  // namespace zoffload
