// The two kinds of memory. A HostSpan is bytes the CPU can address; a DeviceSpan is bytes an
// accelerator can, and cannot be dereferenced here. They do not convert into each other, so mixing
// them up does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/base/check.h"

namespace zoffload {

using HostSpan = std::span<std::byte>;
using ConstHostSpan = std::span<const std::byte>;

class DeviceSpan {
 public:
  DeviceSpan() = default;
  DeviceSpan(uint64_t address, uint64_t bytes) : address_(address), bytes_(bytes) {}

  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

  DeviceSpan subspan(uint64_t offset, uint64_t bytes) const {
    ZO_CHECK(offset <= bytes_);
    ZO_CHECK(bytes <= bytes_ - offset);
    return DeviceSpan(address_ + offset, bytes);
  }

 private:
  uint64_t address_ = 0;
  uint64_t bytes_ = 0;
};

// The elements of type T that lie in a host span. REQUIRES: aligned for T, a whole number of
// elements.
template <typename T, typename Byte>
auto elements(std::span<Byte> bytes) {
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  ZO_CHECK(bytes.size() % sizeof(T) == 0);
  ZO_CHECK(reinterpret_cast<uintptr_t>(bytes.data()) % alignof(T) == 0);
  return std::span<Element>(reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(T));
}

}  // namespace zoffload
