// The bytes of one simulated file. Bytes that were never written, or only ever as zeros, cost no
// memory, so a terabyte can be planned for on a laptop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/base/span.h"

namespace zoffload {

class SparseFile {
 public:
  explicit SparseFile(uint64_t bytes) : bytes_(bytes) {}

  uint64_t bytes() const { return bytes_; }
  uint64_t stored_bytes() const { return blocks_.size() * kBlockBytes; }  // of memory in use

  // REQUIRES: the range lies in the file.
  void read(uint64_t offset, HostSpan to) const;
  void write(uint64_t offset, ConstHostSpan from);
  void flip_bit(uint64_t offset, uint32_t bit);  // bit < 8

 private:
  static constexpr uint64_t kBlockBytes = 64 << 10;

  uint64_t bytes_;
  std::map<uint64_t, std::vector<std::byte>> blocks_;  // by index; an absent block is zeros
};

}  // namespace zoffload
