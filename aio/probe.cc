#include "aio/probe.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdio>

#include "aio/file.h"
#include "aio/ring.h"

namespace zoffload {
namespace {

struct FileSystem {
  uint32_t magic;
  const char* name;
};
constexpr FileSystem kFileSystems[] = {
    {0xef53, "ext4"},      {0x58465342, "xfs"},     {0x9123683e, "btrfs"}, {0x01021994, "tmpfs"},
    {0x858458f6, "ramfs"}, {0x794c7630, "overlay"}, {0xf2f52010, "f2fs"},  {0x2fc12fc1, "zfs"},
    {0x6969, "nfs"},       {0x65735546, "fuse"},    {0xff534d42, "cifs"},  {0xfe534d42, "smb2"},
    {0x0bd00bd0, "lustre"}};

std::string file_system_name(uint32_t magic) {
  for (const FileSystem& known : kFileSystems) {
    if (known.magic == magic) return known.name;
  }
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", magic);
  return text;
}

Status unusable(int error_number, const std::string& what) {
  return Status(Code::kInvalidArgument, what, error_number);
}

Status check_folder(const std::string& folder) {
  struct stat facts = {};
  if (stat(folder.c_str(), &facts) != 0) {
    if (errno == ENOENT) {
      return unusable(ENOENT, folder + ": no such folder; create it or change the path");
    }
    return Status::from_errno(errno, folder);
  }
  if (!S_ISDIR(facts.st_mode)) {
    return unusable(ENOTDIR, folder + ": not a folder; give the folder that the files go into");
  }
  return Status();
}

Status describe_file_system(IoProbe& probe) {
  struct statfs file_system = {};
  struct statvfs space = {};
  if (statfs(probe.folder.c_str(), &file_system) != 0) {
    return Status::from_errno(errno, probe.folder);
  }
  if (statvfs(probe.folder.c_str(), &space) != 0) return Status::from_errno(errno, probe.folder);
  probe.file_system = file_system_name(static_cast<uint32_t>(file_system.f_type));
  probe.is_memory = probe.file_system == "tmpfs" || probe.file_system == "ramfs";
  probe.is_overlay = probe.file_system == "overlay";
  probe.free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  return Status();
}

Status try_file(IoProbe& probe) {
  const auto file = File::create_unnamed(probe.folder, 0, false);
  if (!file.ok()) {
    const int error_number = file.status().error_number();
    if (error_number == EACCES || error_number == EROFS) {
      return unusable(error_number,
                      probe.folder +
                          ": not writable; mount it read-write or change its owner or "
                          "mode");
    }
    return Status::from_errno(error_number, probe.folder + ": cannot create a file");
  }
  const DirectIo direct = probe_direct_io(file->fd());
  probe.direct = direct.supported;
  probe.direct_alignment = direct.alignment;
  probe.why_not_direct = direct.why_not;
  return Status();
}

}  // namespace

const char* uring_state_name(UringState state) {
  switch (state) {
    case UringState::kReady: return "ok";
    case UringState::kDenied: return "denied";
    case UringState::kDisabled: return "disabled";
    case UringState::kAbsent: return "absent";
    case UringState::kFailed: return "failed";
  }
  return "unknown";
}

UringProbe probe_uring() {
  constexpr uint32_t kEntries = 8;
  const auto ring = Ring::create(kEntries, RingRung::kDeferTaskrun);
  UringProbe probe;
  if (ring.ok()) {
    probe.state = UringState::kReady;
    probe.features = ring.value()->features();
    return probe;
  }
  probe.why = ring.status().message();
  switch (ring.status().error_number()) {
    case EPERM:
      probe.state = io_uring_disabled_setting() != 0 ? UringState::kDisabled : UringState::kDenied;
      break;
    case ENOSYS: probe.state = UringState::kAbsent; break;
    default: probe.state = UringState::kFailed; break;
  }
  return probe;
}

IoProbe probe_path(const std::string& folder) {
  IoProbe probe;
  probe.folder = folder;
  probe.uring = probe_uring();
  probe.status = check_folder(folder);
  if (probe.status.ok()) probe.status = describe_file_system(probe);
  if (probe.status.ok()) probe.status = try_file(probe);
  return probe;
}

}  // namespace zoffload
