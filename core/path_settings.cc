#include "core/path_settings.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace zoffload {

namespace {

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::weakly_canonical(path, error);
  return error ? path : full.string();
}

template <typename T>
T first_known(T config, T profile, T fallback) {
  if (config != 0) return config;
  return profile != 0 ? profile : fallback;
}

}  // namespace

Result<Profile> profile_of(const OpenRequest& request) {
  if (request.profile_file.empty()) return Profile();
  std::error_code error;
  if (std::filesystem::is_directory(request.profile_file, error)) {
    return Status::from_errno(EISDIR, "profile: " + request.profile_file);
  }
  std::ifstream file(request.profile_file, std::ios::binary);
  if (!file) return Status::from_errno(errno, "profile: " + request.profile_file);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  Result<Profile> profile = parse_profile(text);
  if (!profile.ok()) return profile.status().within("profile: " + request.profile_file);
  return profile;
}

const PathProfile* profile_of_folder(const Profile& profile, const std::string& folder) {
  return profile.find(absolute(folder));
}

std::vector<PathSettings> path_settings(const OpenRequest& request, const Profile& profile) {
  std::vector<PathSettings> settings;
  for (const std::string& folder : request.nvme_paths) {
    const PathProfile* found = profile_of_folder(profile, folder);
    const PathProfile known = found == nullptr ? PathProfile() : *found;
    settings.push_back(
        {first_known(request.io_block_bytes, known.block_bytes, kUnmeasuredBlockBytes),
         first_known(request.io_queue_depth, known.queue_depth, kUnmeasuredDepth)});
  }
  return settings;
}

}  // namespace zoffload
