#include "bench/storage_check.h"

#include <sys/stat.h>

#include <map>

#include "core/base/format.h"
#include "core/base/types.h"

namespace zoffload::bench {
namespace {

Status check_kind(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) return Status();  // the probe says what is wrong
  if (!S_ISBLK(facts.st_mode) && !S_ISCHR(facts.st_mode)) return Status();
  return Status(Code::kInvalidArgument,
                path + ": a raw device is never written to; give a folder on its file system");
}

Status check_probe(const IoProbe& probe, const StorageSetup& setup) {
  ZO_TRY(probe.status);
  if (probe.is_memory && !setup.force) {
    return Status(Code::kInvalidArgument, probe.folder + ": " + probe.file_system +
                                              " is memory, not a drive; give a folder on a drive, "
                                              "or --force to measure it nevertheless");
  }
  if (setup.direct == Direct::kOn && !probe.direct) {
    return Status(Code::kUnsupported, probe.folder + ": --direct on: " + probe.why_not_direct);
  }
  return Status();
}

}  // namespace

zoffload::Result<std::vector<IoProbe>> check_paths(const StorageSetup& setup) {
  if (setup.paths.empty()) return Status(Code::kInvalidArgument, "--path: a folder is missing");
  std::vector<IoProbe> probes;
  std::map<dev_t, uint64_t> needed_bytes;
  for (const std::string& path : setup.paths) {
    ZO_TRY(check_kind(path).within("--path"));
    probes.push_back(probe_path(path));
    ZO_TRY(check_probe(probes.back(), setup).within("--path"));
    struct stat facts = {};
    if (stat(path.c_str(), &facts) != 0) return Status::from_errno(errno, "--path: " + path);
    uint64_t& needed = needed_bytes[facts.st_dev];
    needed += setup.size_bytes;
    // Without a sum that could overflow: a tenth of what is free stays free.
    const uint64_t usable = probes.back().free_bytes / 11 * 10;
    if (needed > usable || needed < setup.size_bytes) {
      return Status(Code::kOutOfSpace, "--path: " + path + ": the test needs " +
                                           format_bytes(needed) + " and 10 % more, free are " +
                                           format_bytes(probes.back().free_bytes) +
                                           "; lower --size, or free some space");
    }
  }
  return probes;
}

}  // namespace zoffload::bench
