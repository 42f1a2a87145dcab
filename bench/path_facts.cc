#include "bench/path_facts.h"

#include <cstdio>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>

#include "core/base/format.h"

namespace zoffload::bench {
namespace {

using Findings = std::vector<Finding>;

constexpr const char* kChooseLocal = "choose a folder on a local NVMe drive";

// What is not known is left out.
template <typename T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

void put(Json& json, const char* key, const std::string& text) {
  if (!text.empty()) json[key] = text;
}

Json to_json(const PcieLink& link) {
  Json json = {{"address", link.address}};
  if (link.lanes == 0) return json;
  json["gigatransfers_per_s"] = link.gt_per_s;
  json["lanes"] = link.lanes;
  json["gigatransfers_per_s_max"] = link.gt_per_s_max;
  json["lanes_max"] = link.lanes_max;
  return json;
}

Json to_json(const Drive& drive) {
  Json json = {{"name", drive.name}};
  put(json, "transport", drive.transport);
  put(json, "model", drive.model);
  put(json, "capacity_bytes", drive.bytes);
  put(json, "rotational", drive.rotational);
  put(json, "logical_block_bytes", drive.logical_block_bytes);
  put(json, "physical_block_bytes", drive.physical_block_bytes);
  put(json, "request_bytes_max", drive.request_bytes_max);
  put(json, "requests_per_queue", drive.requests_per_queue);
  put(json, "queue_count", drive.queue_count);
  put(json, "poll_queue_count", drive.poll_queue_count);
  put(json, "scheduler", drive.scheduler);
  put(json, "write_cache", drive.write_cache);
  put(json, "fua", drive.fua);
  put(json, "discard", drive.discard);
  put(json, "numa_node", drive.numa_node);
  if (drive.pcie) json["pcie"] = to_json(*drive.pcie);
  return json;
}

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  for (const char* known : words) {
    if (word == known) return true;
  }
  return false;
}

bool is_remote(const std::string& file_system) {
  return starts_with(file_system, "fuse") || starts_with(file_system, "nfs") ||
         starts_with(file_system, "smb") ||
         is_one_of(file_system, {"cifs", "9p", "virtiofs", "ceph", "lustre", "beegfs", "gpfs"});
}

Finding unusable(const Status& status) {
  const auto [why, remedy] = split_remedy(status.message());
  return {Level::kFail, "nvme path", why,
          remedy.empty() ? "choose another folder, or change its owner" : remedy};
}

Finding describe(const PathFacts& path) {
  const IoProbe& io = path.io;
  std::string says = io.folder + ": " + format_bytes(io.free_bytes) + " free, ";
  says += path.file_system();
  says += io.direct ? ", direct I/O in units of " + format_bytes(io.direct_alignment)
                    : ", no direct I/O";
  const auto warn = [&](const std::string& why, const char* remedy) {
    return Finding{Level::kWarn, "nvme path", says + ": " + why, remedy};
  };
  if (io.is_memory) return warn("this is memory, not a disk", "choose a folder on an NVMe drive");
  if (io.is_overlay) {
    return warn("a container's own layer, slower and lost with it",
                "mount a folder of an NVMe drive into the container");
  }
  if (is_remote(path.file_system())) return warn("slower than a local ext4 or XFS", kChooseLocal);
  if (path.file_system() == "btrfs") {
    return warn("it copies on write, which makes updates slow",
                "choose ext4 or XFS, or make an empty folder and chattr +C it");
  }
  if (path.file_system() == "zfs") {
    return warn("it copies on write, which makes updates slow", "choose ext4 or XFS");
  }
  if (!io.direct) return warn(io.why_not_direct, kChooseLocal);
  return {Level::kOk, "nvme path", says, ""};
}

void judge_mount(const PathFacts& path, Findings& findings) {
  const Mount& mount = path.mount;
  const auto warn = [&](const std::string& why, const std::string& remedy) {
    findings.push_back({Level::kWarn, "mount", mount.point + " has " + why, remedy});
  };
  if (mount.value("data") == "journal") {
    warn("data=journal: every write is made twice, through the page cache",
         "mount it with data=ordered");
  }
  if (mount.has("discard")) {
    warn("discard: removing a file makes the drive trim at once",
         "mount it with nodiscard, and enable fstrim.timer");
  }
  if (mount.has("sync")) warn("sync: every write waits for a flush", "mount it without sync");
  if (mount.has("nobarrier") || mount.value("barrier") == "0") {
    warn("no barriers: a power cut may lose what was said to be durable", "mount it with barrier");
  }
  // relatime writes an inode once a day; without either, every read does.
  if (!mount.options.empty() && !mount.has("noatime") && !mount.has("relatime")) {
    warn("strictatime: reads write to the disk", "mount it with noatime");
  }
}

void judge_layers(const DriveStack& stack, Findings& findings) {
  for (const Layer& layer : stack.layers) {
    const auto warn = [&](const std::string& why, const std::string& remedy) {
      findings.push_back(
          {Level::kWarn, "drive", layer.name + " (" + layer.kind + ") " + why, remedy});
    };
    if (layer.kind == "crypt") {
      warn("encrypts on the CPU, which the updates need too", "choose a drive without dm-crypt");
    } else if (is_one_of(layer.kind, {"raid4", "raid5", "raid6"})) {
      warn("writes parity, several times slower than the drives", "give a path on each drive");
    } else if (layer.kind == "raid0") {
      findings.push_back({Level::kOk, "drive",
                          layer.name + " (raid0) hides the speed of each drive",
                          "a path on each drive stripes as well, and shows it"});
    } else if (layer.kind == "loop") {
      warn("is a file on another file system", "choose a folder of that file system");
    }
  }
}

std::string describe(const PcieLink& link, double gt_per_s, uint32_t lanes) {
  char text[96];
  std::snprintf(text, sizeof text, "PCIe %g GT/s x%u at %s", gt_per_s, lanes, link.address.c_str());
  return link.lanes == 0 ? "PCI " + link.address : text;
}

// "nvme0n1: SAMSUNG MZQL2, 3.49 TiB, nvme, PCIe 16 GT/s x4 at 0000:41:00.0, NUMA node 1 ..."
std::string describe(const Drive& drive) {
  std::string says = drive.name + ":";
  const auto add = [&](const std::string& fact) {
    says += (says.back() == ':' ? " " : ", ") + fact;
  };
  if (!drive.model.empty()) add(drive.model);
  if (drive.bytes) add(format_bytes(*drive.bytes));
  if (!drive.transport.empty()) add(drive.transport);
  if (drive.pcie) add(describe(*drive.pcie, drive.pcie->gt_per_s, drive.pcie->lanes));
  if (drive.numa_node) add("NUMA node " + std::to_string(*drive.numa_node));
  if (drive.queue_count) {
    std::string queues =
        std::to_string(*drive.queue_count) + (*drive.queue_count == 1 ? " queue" : " queues");
    if (drive.requests_per_queue) queues += " of " + std::to_string(*drive.requests_per_queue);
    add(queues);
  }
  if (drive.request_bytes_max) add("requests up to " + format_bytes(*drive.request_bytes_max));
  if (!drive.scheduler.empty()) add("scheduler " + drive.scheduler);
  if (!drive.write_cache.empty()) add(drive.write_cache);
  return says;
}

void judge_drive(const Drive& drive, Findings& findings) {
  findings.push_back({Level::kOk, "drive", describe(drive), ""});
  const auto warn = [&](const std::string& why, const std::string& remedy) {
    findings.push_back({Level::kWarn, "drive", drive.name + " " + why, remedy});
  };
  // Virtual drives call themselves rotational when they do not know.
  const bool physical = is_one_of(drive.transport, {"nvme", "sata", "sas", "usb", "scsi"});
  if (physical && drive.rotational.value_or(false)) warn("is a rotating disk", kChooseLocal);
  if (drive.transport == "usb") warn("is behind USB", kChooseLocal);
  if (drive.transport == "memory") warn("is memory, not a disk", kChooseLocal);
  if (starts_with(drive.transport, "nvme-") ||
      is_one_of(drive.transport, {"iscsi", "fc", "nbd", "rbd", "drbd"})) {
    warn("is behind a network (" + drive.transport + ")", kChooseLocal);
  }
  if (drive.transport == "nvme" && drive.pcie && drive.pcie->is_below_its_best()) {
    const PcieLink& link = *drive.pcie;
    warn("has a link of " + describe(link, link.gt_per_s, link.lanes) + ", and could have " +
             describe(link, link.gt_per_s_max, link.lanes_max),
         "reseat the drive, look at its cable and at the firmware's settings of the slot");
  }
  if (drive.scheduler == "bfq") {
    warn("has the scheduler bfq, which costs much CPU",
         "echo none > /sys/block/" + drive.name + "/queue/scheduler");
  }
}

// Every drive once, with the first folder that it holds; a later one shares its bandwidth.
class DriveReport {
 public:
  void add(const PathFacts& path, Findings& findings) {
    const std::string& folder = path.io.folder;
    judge_layers(path.stack, findings);
    for (const Drive& drive : path.stack.drives) {
      const auto [holder, first] = holders_.emplace(drive.name, folder);
      if (first) {
        judge_drive(drive, findings);
      } else {
        findings.push_back({Level::kWarn, "drive",
                            drive.name + " holds " + holder->second + " and " + folder +
                                ", which share its bandwidth",
                            "give one path on each drive"});
      }
    }
    if (path.stack.why_unknown.empty() || path.io.is_memory) return;
    findings.push_back(
        {Level::kOk, "drive", "unknown below " + folder + ": " + path.stack.why_unknown, ""});
  }

 private:
  std::map<std::string, std::string> holders_;
};

}  // namespace

const std::string& PathFacts::file_system() const {
  return mount.type.empty() ? io.file_system : mount.type;
}

Json PathFacts::to_json() const {
  Json json = {{"path", io.folder}, {"usable", io.status.ok()}};
  if (!io.status.ok()) {
    json["why_unusable"] = io.status.message();
    return json;
  }
  json["file_system"] = file_system();
  put(json, "mount_point", mount.point);
  put(json, "mount_source", mount.source);
  json["mount_options"] = mount.options;
  json["free_bytes"] = io.free_bytes;
  json["direct"] = io.direct;
  if (io.direct) json["direct_alignment_bytes"] = io.direct_alignment;
  put(json, "why_not_direct", io.why_not_direct);
  json["layers"] = Json::array();
  for (const Layer& layer : stack.layers) {
    json["layers"].push_back({{"name", layer.name}, {"kind", layer.kind}});
  }
  json["drives"] = Json::array();
  for (const Drive& drive : stack.drives) json["drives"].push_back(bench::to_json(drive));
  put(json, "why_drives_unknown", stack.why_unknown);
  return json;
}

PathFacts look_at_path(const std::string& path, const std::string& root) {
  PathFacts facts;
  facts.io = probe_path(path);
  if (!facts.io.status.ok()) return facts;
  facts.mount = find_mount(path, root);
  facts.stack = find_drives(path, root);
  return facts;
}

std::vector<Finding> path_findings(const std::vector<PathFacts>& paths) {
  Findings findings;
  std::set<std::string> mounts;
  DriveReport drives;
  for (const PathFacts& path : paths) {
    if (!path.io.status.ok()) {
      findings.push_back(unusable(path.io.status));
      continue;
    }
    findings.push_back(describe(path));
    if (mounts.insert(path.mount.point).second) judge_mount(path, findings);
    drives.add(path, findings);
  }
  return findings;
}

}  // namespace zoffload::bench
