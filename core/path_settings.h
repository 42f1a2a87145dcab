// What is known of the nvme_paths before anything is opened: the profile, and the block and depth
// that follow from it and the config. Part of the composition root.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/open.h"
#include "core/plan/profile.h"

namespace zoffload {

// Of a path that nobody has measured.
inline constexpr uint32_t kUnmeasuredDepth = 32;
inline constexpr uint64_t kUnmeasuredBlockBytes = uint64_t{1} << 20;

// An empty profile where the request names no file.
Result<Profile> profile_of(const OpenRequest& request);

// The entry for a folder as the user wrote it; null if there is none.
const PathProfile* profile_of_folder(const Profile& profile, const std::string& folder);

struct PathSettings {
  uint64_t block_bytes = 0;
  uint32_t depth = 0;
  uint64_t in_flight_bytes() const { return block_bytes * depth; }
};

// What the config says, else the profile, else the default; by path.
std::vector<PathSettings> path_settings(const OpenRequest& request, const Profile& profile);

}  // namespace zoffload
