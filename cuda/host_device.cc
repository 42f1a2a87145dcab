#include "cuda/host_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/format.h"
#include "cuda/available_memory.h"

#ifndef MADV_POPULATE_WRITE  // Linux 5.14; older C libraries lack the name
#define MADV_POPULATE_WRITE 23
#endif

namespace zoffload {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr uint64_t kMappingBytesMax = uint64_t{1} << 60;  // keeps the sums below from overflowing

void unmap(std::byte* address, uint64_t bytes) {
  const int result = bytes == 0 ? 0 : munmap(address, bytes);
  ZO_CHECK(result == 0);
}

// Makes every page present now, so that no copy pays for it later.
Status populate(HostSpan memory) {
  if (madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0) return Status();
  if (errno != EINVAL) return Status::from_errno(errno, "populate");
  for (uint64_t offset = 0; offset < memory.size(); offset += kPageBytes) {
    *static_cast<volatile std::byte*>(memory.data() + offset) = std::byte{0};
  }
  return Status();
}

Status prepare(HostSpan memory) {
  // Only a wish: a kernel without huge pages says no, and small pages serve.
  static_cast<void>(madvise(memory.data(), memory.size(), MADV_HUGEPAGE));
  if (madvise(memory.data(), memory.size(), MADV_DONTFORK) != 0) {
    return Status::from_errno(errno, "keep from children");
  }
  return populate(memory);
}

// Zeroed pages at a 2 MiB boundary: maps 2 MiB too many and gives the ends back.
Result<HostSpan> map_pages(uint64_t bytes) {
  if (bytes > kMappingBytesMax) return Status::from_errno(ENOMEM, "map");
  const uint64_t padded = round_up(bytes, kPageBytes);
  void* mapped = mmap(nullptr, padded + kHugePageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return Status::from_errno(errno, "map");
  std::byte* const begin = static_cast<std::byte*>(mapped);
  const uint64_t address = reinterpret_cast<uint64_t>(mapped);
  const uint64_t head = round_up(address, kHugePageBytes) - address;
  unmap(begin, head);
  unmap(begin + head + padded, kHugePageBytes - head);

  const HostSpan memory(begin + head, padded);
  if (Status status = prepare(memory); !status.ok()) {
    unmap(memory.data(), memory.size());
    return status;
  }
  return memory;
}

// Maps `bytes`, remembers the pages in `owned`, and returns the part that was asked for.
Result<HostSpan> allocate(uint64_t bytes, const char* what, std::vector<HostSpan>& owned) {
  ZO_CHECK(bytes > 0);
  // Every page is made present, and too many would end in the kernel killing somebody.
  const uint64_t available = available_memory_bytes();
  if (bytes > available) {
    return Status(Code::kOutOfMemory, format_bytes(bytes) + " (" + std::to_string(bytes) +
                                          " bytes) of " + what + " memory are needed, " +
                                          format_bytes(available) +
                                          " are available: set host_bytes, or move more to nvme");
  }
  Result<HostSpan> memory = map_pages(bytes);
  if (!memory.ok()) {
    return Status(Code::kOutOfMemory,
                  "cannot allocate " + format_bytes(bytes) + " (" + std::to_string(bytes) +
                      " bytes) of " + what + " memory: " + memory.status().message(),
                  memory.status().error_number());
  }
  owned.push_back(*memory);
  return memory->first(bytes);
}

}  // namespace

HostDevice::HostDevice() : owner_(getpid()) {}

HostDevice::~HostDevice() {
  // A child never had these mappings (MADV_DONTFORK); something else may lie at their addresses by
  // now.
  if (getpid() != owner_) return;
  ZO_CHECK(in_flight_.empty());
  for (HostSpan memory : hbm_) unmap(memory.data(), memory.size());
  for (HostSpan memory : pinned_) unmap(memory.data(), memory.size());
}

Result<DeviceSpan> HostDevice::allocate_hbm(uint64_t bytes) {
  ZO_ASSIGN_OR_RETURN(const HostSpan memory, allocate(bytes, "device", hbm_));
  return DeviceSpan(reinterpret_cast<uint64_t>(memory.data()), memory.size());
}

Result<HostSpan> HostDevice::allocate_pinned(uint64_t bytes) {
  return allocate(bytes, "pinned host", pinned_);
}

bool HostDevice::is_pinned(HostSpan span) const {
  return std::any_of(pinned_.begin(), pinned_.end(), [span](HostSpan memory) {
    return span.data() >= memory.data() &&
           span.data() + span.size() <= memory.data() + memory.size();
  });
}

void HostDevice::copy_to_device(HostSpan from, DeviceSpan to, Completion& completion) {
  ZO_CHECK(is_pinned(from));
  start(from, host_view(to), completion);
}

void HostDevice::copy_to_host(DeviceSpan from, HostSpan to, Completion& completion) {
  ZO_CHECK(is_pinned(to));
  start(host_view(from), to, completion);
}

void HostDevice::copy_on_device(DeviceSpan from, DeviceSpan to, Completion& completion) {
  start(host_view(from), host_view(to), completion);
}

void HostDevice::fence(Stream, Completion& completion) { start({}, {}, completion); }

void HostDevice::start(HostSpan from, HostSpan to, Completion& completion) {
  ZO_CHECK(from.size() == to.size());
  completion.start();
  in_flight_.push_back({from, to, &completion});
}

uint32_t HostDevice::poll() {
  const std::vector<Operation> running = std::exchange(in_flight_, {});
  for (const Operation& operation : running) {
    // memmove: a copy within the device may overlap itself, or be in place.
    if (!operation.from.empty()) {
      std::memmove(operation.to.data(), operation.from.data(), operation.from.size());
    }
    operation.completion->finish(Status(), operation.from.size());
  }
  return static_cast<uint32_t>(running.size());
}

HostSpan HostDevice::host_view(DeviceSpan span) {
  return HostSpan(reinterpret_cast<std::byte*>(span.address()), span.bytes());
}

}  // namespace zoffload
