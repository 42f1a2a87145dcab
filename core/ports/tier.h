// A place that holds extents. Host memory is the hub: a tier moves bytes to and from host memory
// only. The public verbs check alignment, bounds and size and count bytes, once, here; subclasses
// only move.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/span.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/ports/completion.h"

namespace zoffload {

// How soon the bytes of a load are needed.
enum class Urgency : uint8_t {
  kDemand,    // somebody waits for them now
  kPrefetch,  // ahead of their use
};

// One of the drives that a tier stands on.
struct TierPath {
  std::string name;                  // as the user wrote it
  uint64_t first_written_bytes = 0;  // by open(), before the first store
  double bytes_per_s = 0;            // measured while it was busy; 0: not yet
};

class Tier {
 public:
  Tier(TierKind kind, uint64_t capacity_bytes) : kind_(kind), capacity_bytes_(capacity_bytes) {}
  virtual ~Tier();  // REQUIRES: nothing in flight
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  TierKind kind() const { return kind_; }
  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t loaded_bytes() const { return loaded_bytes_; }      // by load(), since the start
  uint64_t demanded_bytes() const { return demanded_bytes_; }  // of these, with kDemand
  uint64_t stored_bytes() const { return stored_bytes_; }      // by store()

  // A page-aligned range of `bytes` (any number above 0), at open() only. Its bytes read as zero
  // until stored. Extents live as long as their tier. kOutOfSpace says how many bytes are missing.
  Result<Extent> allocate(uint64_t bytes);

  // Moves the whole extent. REQUIRES: allocated here; to.size() == extent.bytes rounded up to
  // kPageBytes; no other operation on the extent in flight. The bytes past extent.bytes in `to` are
  // unspecified.
  void load(Extent from, HostSpan to, Urgency urgency, Completion& completion);
  void store(HostSpan from, Extent to, Completion& completion);

  // The bytes themselves, where the CPU, or the device, can address them; else empty.
  virtual HostSpan host_bytes(Extent) { return {}; }
  virtual DeviceSpan device_bytes(Extent) { return {}; }

  // Of a tier on drives: the drives, and the one that the extent's operation in flight uses.
  virtual std::vector<TierPath> paths() const { return {}; }
  virtual uint32_t path_of(Extent) const { return 0; }

  virtual uint32_t poll() { return 0; }  // delivers what has finished; returns the number delivered
  virtual void cancel() {}               // as IoQueue::cancel()

 protected:
  virtual void do_load(Extent from, HostSpan to, Urgency urgency, Completion& completion) = 0;
  virtual void do_store(HostSpan from, Extent to, Completion& completion) = 0;

  // Called by allocate() with each new extent, for a tier that keeps extents elsewhere than at
  // their offset.
  virtual void place(Extent) {}

 private:
  void check_span(Extent extent, HostSpan memory) const;

  const TierKind kind_;
  const uint64_t capacity_bytes_;
  uint64_t used_bytes_ = 0;
  uint64_t loaded_bytes_ = 0;
  uint64_t demanded_bytes_ = 0;
  uint64_t stored_bytes_ = 0;
};

}  // namespace zoffload
