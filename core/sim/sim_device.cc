#include "core/sim/sim_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/format.h"

namespace zoffload {
namespace {

using Ranges = std::map<uint64_t, uint64_t>;

uint64_t address_of(HostSpan span) { return reinterpret_cast<uintptr_t>(span.data()); }
std::byte* bytes_at(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

bool contains(const Ranges& ranges, uint64_t address, uint64_t bytes) {
  const auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return false;
  const auto& [start, range_bytes] = *std::prev(after);
  return address - start <= range_bytes && bytes <= range_bytes - (address - start);
}

uint64_t total_bytes(const Ranges& ranges) {
  uint64_t total = 0;
  for (const auto& [address, bytes] : ranges) total += bytes;
  return total;
}

}  // namespace

SimDevice::SimDevice(SimClock& clock, const SimDeviceOptions& options, uint64_t seed, Trace* trace,
                     std::string label)
    : clock_(clock),
      options_(options),
      label_(std::move(label)),
      random_(seed),
      operations_(label_, clock, trace) {
  ZO_CHECK(options.to_device_bytes_per_ns > 0);
  ZO_CHECK(options.to_host_bytes_per_ns > 0);
  ZO_CHECK(options.on_device_bytes_per_ns > 0);
  ZO_CHECK(options.host_alignment > 0);
}

Result<DeviceSpan> SimDevice::allocate_hbm(uint64_t bytes) {
  ZO_ASSIGN_OR_RETURN(const uint64_t address, allocate(bytes, options_.hbm_bytes, hbm_));
  return DeviceSpan(address, bytes);
}

Result<HostSpan> SimDevice::allocate_pinned(uint64_t bytes) {
  ZO_ASSIGN_OR_RETURN(const uint64_t address, allocate(bytes, options_.pinned_bytes, pinned_));
  return HostSpan(bytes_at(address), bytes);
}

Result<uint64_t> SimDevice::allocate(uint64_t bytes, uint64_t limit_bytes, Ranges& ranges) {
  ZO_CHECK(bytes > 0);
  const Status too_much(Code::kOutOfMemory, label_ + ": no room for " + format_bytes(bytes) + " (" +
                                                std::to_string(bytes) + " bytes)");
  if (bytes > limit_bytes - total_bytes(ranges)) return too_much;
  // calloc leaves untouched pages to the kernel, and address sanitizers know it.
  void* raw = std::calloc(1, bytes + kPageBytes);
  if (raw == nullptr) return too_much;
  memory_.emplace_back(static_cast<std::byte*>(raw));
  const uint64_t address = round_up(reinterpret_cast<uintptr_t>(raw), kPageBytes);
  ranges.emplace(address, bytes);
  return address;
}

void SimDevice::copy_to_device(HostSpan from, DeviceSpan to, Completion& completion) {
  ZO_CHECK(from.size() == to.bytes());
  check_host(from);
  memory(to);
  copy(kToDevice, address_of(from), to.address(), to.bytes(), completion);
}

void SimDevice::copy_to_host(DeviceSpan from, HostSpan to, Completion& completion) {
  ZO_CHECK(from.bytes() == to.size());
  memory(from);
  check_host(to);
  copy(kToHost, from.address(), address_of(to), from.bytes(), completion);
}

void SimDevice::copy_on_device(DeviceSpan from, DeviceSpan to, Completion& completion) {
  ZO_CHECK(from.bytes() == to.bytes());
  memory(from);
  memory(to);
  copy(kOnDevice, from.address(), to.address(), from.bytes(), completion);
}

void SimDevice::fence(Stream stream, Completion& completion) {
  const InFlight::Id id = operations_.start("fence " + std::to_string(stream), completion);
  const uint64_t passed_ns = std::max(clock_.now_ns(), stream_free_ns_[stream]);
  end_later(id, passed_ns + options_.latency_ns, 0, 0, 0);
}

HostSpan SimDevice::host_view(DeviceSpan span) {
  return options_.host_visible ? memory(span) : HostSpan();
}

void SimDevice::adopt(DeviceSpan memory) {
  ZO_CHECK(!memory.empty());
  const bool is_new = adopted_.emplace(memory.address(), memory.bytes()).second;
  ZO_CHECK(is_new);
}

void SimDevice::disown(DeviceSpan memory) {
  const uint64_t erased_count = adopted_.erase(memory.address());
  ZO_CHECK(erased_count == 1);
}

void SimDevice::enqueue(Stream stream, uint64_t duration_ns) {
  uint64_t& free_ns = stream_free_ns_[stream];
  free_ns = std::max(free_ns, clock_.now_ns()) + duration_ns;
}

HostSpan SimDevice::memory(DeviceSpan span) {
  const bool known = contains(hbm_, span.address(), span.bytes()) ||
                     contains(adopted_, span.address(), span.bytes());
  ZO_CHECK(known);
  return HostSpan(bytes_at(span.address()), span.bytes());
}

void SimDevice::check_host(HostSpan span) const {
  ZO_CHECK(contains(pinned_, address_of(span), span.size()));
  ZO_CHECK(address_of(span) % options_.host_alignment == 0);
}

void SimDevice::copy(Direction direction, uint64_t from, uint64_t to, uint64_t bytes,
                     Completion& completion) {
  static constexpr const char* kNames[] = {"up ", "down ", "on-device "};
  const double rates[] = {options_.to_device_bytes_per_ns, options_.to_host_bytes_per_ns,
                          options_.on_device_bytes_per_ns};
  const auto id = operations_.start(kNames[direction] + std::to_string(bytes), completion);
  uint64_t& free_ns = link_free_ns_[direction];
  free_ns = std::max(free_ns, clock_.now_ns()) +
            static_cast<uint64_t>(std::ceil(static_cast<double>(bytes) / rates[direction]));
  end_later(id, free_ns + options_.latency_ns, from, to, bytes);
}

// Ends the operation at end_ns, or later where any order is wanted, and moves its bytes then.
void SimDevice::end_later(InFlight::Id id, uint64_t end_ns, uint64_t from, uint64_t to,
                          uint64_t bytes) {
  const uint64_t delay_ns = random_.below(8 * (end_ns - clock_.now_ns()) + 1);
  const bool fails = random_.chance(options_.error);
  if (fails) ++error_count_;
  operations_.at(end_ns + (options_.any_order ? delay_ns : 0), [this, id, fails, from, to, bytes] {
    if (fails) {
      operations_.end(id, Status(Code::kDeviceError, label_ + ": injected error"));
      return;
    }
    if (bytes > 0) std::memmove(bytes_at(to), bytes_at(from), bytes);  // a fence has none
    operations_.end(id, Status(), bytes);
  });
}

}  // namespace zoffload
