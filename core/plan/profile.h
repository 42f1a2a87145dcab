// What a machine was measured to do: profile.json, written by `zoffload-bench profile`, read by the
// engine (queue depths, block sizes, shares of the drives) and by the planner (times). Schema
// "zoffload-profile/1"; the keys are the names of the fields. A pure value: nothing here measures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace zoffload {

struct PathProfile {
  std::string path;          // the folder that was measured, absolute
  std::string io_engine;     // "io_uring", "libaio", "threads"
  uint64_t block_bytes = 0;  // this and the depth: the best found, within what a config allows
  uint32_t queue_depth = 0;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double mixed_bytes_per_s = 0;  // half of the requests reads, half writes
  friend bool operator==(const PathProfile&, const PathProfile&) = default;
};

struct UpdateProfile {
  std::string optimizer;  // "adamw"
  std::string format;     // of the state: "fp32"
  std::string dtype;      // of weights and gradients: "fp32", "bf16"
  uint32_t threads = 0;
  double numel_per_s = 0;
  friend bool operator==(const UpdateProfile&, const UpdateProfile&) = default;
};

// Of the device that the engine would use: the accelerator, or its stand-in in host memory. 0: not
// measured.
struct LinkProfile {
  double to_device_bytes_per_s = 0;
  double to_host_bytes_per_s = 0;
  double both_bytes_per_s = 0;  // both directions at once, added up
  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

struct Profile {
  std::string host;      // node name
  std::string measured;  // ISO 8601
  std::vector<PathProfile> paths;
  std::vector<UpdateProfile> updates;
  LinkProfile link;
  // Of a copy kernel on all cores, bytes read + bytes written; 0: not measured.
  double memory_bytes_per_s = 0;

  friend bool operator==(const Profile&, const Profile&) = default;

  // The entry of the deepest measured folder that is `path` or holds it; null if there is none.
  // REQUIRES: `path` is absolute and has no "..".
  const PathProfile* find(std::string_view path) const;
};

inline constexpr const char* kProfileSchema = "zoffload-profile/1";

// kInvalidArgument: an error lists everything that is wrong, a line each, with the key, what was
// found and what is allowed. Unknown keys are wrong; figures that are not above 0 are.
Result<Profile> parse_profile(std::string_view json_text);

// JSON, indented, without the figures that were not measured. parse_profile() takes it back if all
// text is UTF-8, paths are absolute and differ, and what an entry has is above 0.
std::string print_profile(const Profile& profile);

}  // namespace zoffload
