// What this kernel and this file system allow, in plain fields, to show to the user.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace zoffload {

enum class UringState : uint8_t {
  kReady,
  kDenied,    // EPERM, by a seccomp filter or a security module
  kDisabled,  // EPERM, by kernel.io_uring_disabled
  kAbsent,    // ENOSYS
  kFailed,    // too old, or a limit is too low
};

struct UringProbe {
  UringState state = UringState::kFailed;
  std::string why;       // the reason and the remedy; empty when ready
  std::string features;  // when ready: "single_issuer, defer_taskrun, submit_all"
};

struct IoProbe {
  Status status;  // not ok: nothing can be stored there; names the folder and the remedy
  std::string folder;
  std::string file_system;        // "ext4", "xfs", "tmpfs" ... or the magic number in hex
  bool is_memory = false;         // tmpfs or ramfs: it takes the memory that offload should save
  bool is_overlay = false;        // a container's own layer: a mounted volume is safer
  uint64_t free_bytes = 0;        // for this user
  bool direct = false;            // direct I/O works
  uint32_t direct_alignment = 0;  // in bytes; 0 without direct I/O
  std::string why_not_direct;     // empty when direct
  UringProbe uring;
};

const char* uring_state_name(UringState state);  // "ok", "denied", "disabled", "absent", "failed"

// Sets up a ring, has it answer one request, and takes it down.
UringProbe probe_uring();

// Looks at a folder with a small file that it removes. The ring is probed even if the folder fails.
IoProbe probe_path(const std::string& folder);

}  // namespace zoffload
