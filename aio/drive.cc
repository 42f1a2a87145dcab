#include "aio/drive.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "aio/system_file.h"

namespace zoffload {
namespace {

namespace fs = std::filesystem;

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The entries of a folder in the order of their names; none if it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// With all links followed; empty if it does not exist.
fs::path real_path(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? fs::path() : real;
}

fs::path below(const fs::path& root, const std::string& path) {
  return root / fs::path(path).relative_path();
}

// mountinfo writes a blank as \040.
std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string digits(text.substr(at + 1, 3));
    const bool octal = digits.find_first_not_of("01234567") == std::string::npos;
    if (text[at] == '\\' && octal && digits.size() == 3) {
      plain += static_cast<char>(std::strtol(digits.c_str(), nullptr, 8));
      at += digits.size();
    } else {
      plain += text[at];
    }
  }
  return plain;
}

void append_options(std::string_view list, std::vector<std::string>& options) {
  std::istringstream words{std::string(list)};
  for (std::string word; std::getline(words, word, ',');) {
    word = unescape(word);
    if (std::find(options.begin(), options.end(), word) == options.end()) options.push_back(word);
  }
}

// A line "id parent major:minor root point options [tags] - type source options".
Mount parse_mount(const std::string& line) {
  Mount mount;
  const size_t dash = line.find(" - ");
  if (dash == std::string::npos) return mount;
  std::istringstream head(line.substr(0, dash));
  std::istringstream tail(line.substr(dash + 3));
  std::string skipped, point, options, file_system_options;
  head >> skipped >> skipped >> skipped >> skipped >> point >> options;
  tail >> mount.type >> mount.source >> file_system_options;
  mount.point = unescape(point);
  mount.source = unescape(mount.source);
  append_options(options, mount.options);
  append_options(file_system_options, mount.options);
  return mount;
}

bool holds(const fs::path& point, const fs::path& folder) {
  return std::mismatch(point.begin(), point.end(), folder.begin(), folder.end()).first ==
         point.end();
}

bool is_pci_address(std::string_view name) {  // "0000:41:00.0"
  constexpr std::string_view kForm = "xxxx:xx:xx.x";
  if (name.size() < kForm.size()) return false;
  name = name.substr(name.size() - kForm.size());  // a domain may have more digits
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool fits = kForm[i] == 'x' ? std::isxdigit(static_cast<unsigned char>(name[i])) != 0
                                      : name[i] == kForm[i];
    if (!fits) return false;
  }
  return true;
}

double read_gt_per_s(const fs::path& path) {  // "16.0 GT/s PCIe", "Unknown"
  return std::strtod(read_system_file(path).c_str(), nullptr);
}

uint32_t read_lanes(const fs::path& path) {
  constexpr uint64_t kUnknown = 255;
  const uint64_t lanes = read_system_number(path).value_or(0);
  return lanes >= kUnknown ? 0 : static_cast<uint32_t>(lanes);
}

// The smaller one, where 0 is unknown.
template <typename T>
T smaller_known(T a, T b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

// The link of the PCI function that `device` belongs to.
std::optional<PcieLink> find_pcie_link(fs::path device) {
  while (device.has_relative_path() && !is_pci_address(device.filename().string())) {
    device = device.parent_path();
  }
  if (!device.has_relative_path()) return std::nullopt;
  PcieLink link;
  link.address = device.filename();
  link.gt_per_s = read_gt_per_s(device / "current_link_speed");
  link.lanes = read_lanes(device / "current_link_width");
  link.gt_per_s_max = read_gt_per_s(device / "max_link_speed");
  link.lanes_max = read_lanes(device / "max_link_width");
  const fs::path slot = device.parent_path();
  if (is_pci_address(slot.filename().string())) {
    link.gt_per_s_max = smaller_known(link.gt_per_s_max, read_gt_per_s(slot / "max_link_speed"));
    link.lanes_max = smaller_known(link.lanes_max, read_lanes(slot / "max_link_width"));
  }
  if (link.gt_per_s == 0 || link.lanes == 0) link = PcieLink{link.address};
  return link;
}

// The folder that knows the hardware. With NVMe multipath the drive's own is a virtual one, beside
// links to its controllers.
fs::path hardware_of(const fs::path& device) {
  if (!contains(device.string(), "/nvme-subsystem/")) return device;
  for (const fs::path& entry : entries(device.parent_path())) {
    const std::string name = entry.filename();
    if (starts_with(name, "nvme") && name.find_first_not_of("0123456789", 4) == std::string::npos) {
      return real_path(entry);
    }
  }
  return device;
}

std::optional<uint64_t> count_queues(const fs::path& device, const fs::path& hardware) {
  fs::path queues = device / "mq";
  for (const fs::path& entry : entries(hardware)) {  // a path of the multipath drive: nvme0c1n1
    if (!is_there(queues) && is_there(entry / "mq")) queues = entry / "mq";
  }
  const uint64_t count = entries(queues).size();
  return count == 0 ? std::nullopt : std::optional(count);
}

std::string transport_of(const std::string& name, const fs::path& hardware) {
  const std::string path = hardware.string();
  if (starts_with(name, "nvme")) {
    fs::path controller = hardware;
    if (!is_there(controller / "transport")) controller = controller.parent_path();
    const std::string kind = read_system_file(controller / "transport");
    return kind.empty() || kind == "pcie" ? "nvme" : "nvme-" + kind;
  }
  struct Rule {
    const char* name_start;
    const char* in_path;
    const char* transport;
  };
  constexpr Rule kRules[] = {{"vd", "", "virtio"},        {"xvd", "", "xen"},
                             {"mmcblk", "", "mmc"},       {"pmem", "", "pmem"},
                             {"zram", "", "memory"},      {"ram", "", "memory"},
                             {"nbd", "", "nbd"},          {"rbd", "", "rbd"},
                             {"drbd", "", "drbd"},        {"sd", "/usb", "usb"},
                             {"sd", "/virtio", "virtio"}, {"sd", "/session", "iscsi"},
                             {"sd", "/ata", "sata"},      {"sd", "/end_device-", "sas"},
                             {"sd", "/rport-", "fc"},     {"sd", "/vmbus", "hyper-v"},
                             {"sd", "", "scsi"}};
  for (const Rule& rule : kRules) {
    if (starts_with(name, rule.name_start) && contains(path, rule.in_path)) return rule.transport;
  }
  return "";
}

// "none [mq-deadline] kyber" -> "mq-deadline"
std::string chosen(const std::string& list) {
  const size_t open = list.find('[');
  const size_t close = list.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return list;
  return list.substr(open + 1, close - open - 1);
}

std::optional<uint64_t> times(std::optional<uint64_t> number, uint64_t factor) {
  return number ? std::optional(*number * factor) : std::nullopt;
}

std::optional<bool> is_not_zero(std::optional<uint64_t> number) {
  return number ? std::optional(*number != 0) : std::nullopt;
}

Drive describe_drive(const fs::path& device, const fs::path& root) {
  const fs::path hardware = hardware_of(device);
  const fs::path queue = device / "queue";
  Drive drive;
  drive.name = device.filename();
  drive.transport = transport_of(drive.name, hardware);
  drive.model = read_system_file(device / "device/model");
  drive.bytes = times(read_system_number(device / "size"), 512);  // whatever its blocks are
  drive.rotational = is_not_zero(read_system_number(queue / "rotational"));
  drive.logical_block_bytes = read_system_number(queue / "logical_block_size");
  drive.physical_block_bytes = read_system_number(queue / "physical_block_size");
  drive.request_bytes_max = times(read_system_number(queue / "max_sectors_kb"), 1024);
  drive.requests_per_queue = read_system_number(queue / "nr_requests");
  drive.queue_count = count_queues(device, hardware);
  if (starts_with(drive.name, "nvme")) {
    drive.poll_queue_count = read_system_number(root / "sys/module/nvme/parameters/poll_queues");
  }
  drive.scheduler = chosen(read_system_file(queue / "scheduler"));
  drive.write_cache = read_system_file(queue / "write_cache");
  drive.fua = is_not_zero(read_system_number(queue / "fua"));
  drive.discard = is_not_zero(read_system_number(queue / "discard_max_bytes"));
  drive.pcie = find_pcie_link(hardware);
  for (fs::path up = hardware; up.has_relative_path() && !drive.numa_node; up = up.parent_path()) {
    drive.numa_node = read_system_number(up / "numa_node");
  }
  return drive;
}

std::string kind_of_mapping(const fs::path& device) {  // "CRYPT-LUKS2-5a4f...-home" -> "crypt"
  const std::string uuid = read_system_file(device / "dm/uuid");
  std::string kind = uuid.substr(0, uuid.find('-'));
  for (char& letter : kind) letter = static_cast<char>(std::tolower(letter));
  return kind.empty() ? "dm" : kind;
}

class Descent {
 public:
  explicit Descent(fs::path root) : root_(std::move(root)) {}

  void visit_folder(const std::string& folder) {
    struct stat facts = {};
    if (stat(folder.c_str(), &facts) != 0) {
      return give_up(folder + ": " + std::strerror(errno));
    }
    if (major(facts.st_dev) != 0) return visit_device(major(facts.st_dev), minor(facts.st_dev));
    visit_mount(find_mount(folder, root_));
  }

  void visit_device(uint32_t major_number, uint32_t minor_number) {
    const std::string numbers = std::to_string(major_number) + ":" + std::to_string(minor_number);
    const fs::path device = real_path(root_ / "sys/dev/block" / numbers);
    if (device.empty()) return give_up("/sys does not show the device " + numbers);
    visit(device);
  }

  DriveStack take() { return std::move(stack_); }

 private:
  void give_up(const std::string& why) {
    if (stack_.why_unknown.empty()) stack_.why_unknown = why;
  }

  // A file system whose device number is not its drive's: btrfs, overlayfs, tmpfs, NFS.
  void visit_mount(const Mount& mount) {
    if (mount.type.empty()) return give_up("/proc/self/mountinfo does not show the mount");
    const std::string upper = mount.value("upperdir");
    if (mount.type == "overlay" && !upper.empty()) {
      if (!is_there(upper)) return give_up("the overlay's own folder is outside of this container");
      if (!seen_.insert(upper).second) return give_up("the overlay lies on itself");
      return visit_folder(upper);
    }
    const fs::path device = device_named(mount.source);
    if (device.empty()) return give_up(mount.type + " is on no drive that can be seen from here");
    visit(device);
    visit_btrfs_siblings(device);
  }

  // "/dev/mapper/data" is a link to "../dm-0"; in a container the node itself may be missing.
  fs::path device_named(const std::string& source) const {
    if (!starts_with(source, "/dev/")) return {};
    const fs::path node = real_path(below(root_, source));
    const fs::path name = node.empty() ? fs::path(source).filename() : node.filename();
    return real_path(root_ / "sys/class/block" / name);
  }

  // One btrfs may be spread over several drives; its mount names the first.
  void visit_btrfs_siblings(const fs::path& device) {
    for (const fs::path& file_system : entries(root_ / "sys/fs/btrfs")) {
      const fs::path devices = file_system / "devices";
      if (!is_there(devices / device.filename())) continue;
      for (const fs::path& sibling : entries(devices)) visit(real_path(sibling));
    }
  }

  // `device` is the real folder of a block device in sysfs.
  void visit(fs::path device) {
    if (device.empty() || !seen_.insert(device.string()).second) return;
    if (is_there(device / "partition")) return visit(device.parent_path());
    const std::string name = device.filename();
    const std::vector<fs::path> parts = entries(device / "slaves");
    const std::string file = read_system_file(device / "loop/backing_file");
    if (!parts.empty()) {
      const std::string level = read_system_file(device / "md/level");
      stack_.layers.push_back({name, level.empty() ? kind_of_mapping(device) : level});
      for (const fs::path& part : parts) visit(real_path(part));
    } else if (!file.empty()) {
      stack_.layers.push_back({name, "loop"});
      visit_folder(below(root_, file));
    } else {
      stack_.drives.push_back(describe_drive(device, root_));
    }
  }

  const fs::path root_;
  std::set<std::string> seen_;
  DriveStack stack_;
};

}  // namespace

bool Mount::has(std::string_view option) const {
  return std::find(options.begin(), options.end(), option) != options.end();
}

std::string Mount::value(std::string_view key) const {
  for (const std::string& option : options) {
    if (starts_with(option, key) && option.size() > key.size() && option[key.size()] == '=') {
      return option.substr(key.size() + 1);
    }
  }
  return "";
}

Mount find_mount(const std::string& folder, const std::string& root) {
  const fs::path real = real_path(folder);
  std::ifstream lines(fs::path(root) / "proc/self/mountinfo");
  Mount best;
  for (std::string line; std::getline(lines, line);) {
    Mount mount = parse_mount(line);
    // A later line hides an earlier one of the same point.
    const bool is_inner = mount.point.size() >= best.point.size();
    if (!mount.point.empty() && is_inner && holds(mount.point, real)) best = std::move(mount);
  }
  return best;
}

DriveStack find_drives(const std::string& folder, const std::string& root) {
  Descent descent(root);
  descent.visit_folder(folder);
  return descent.take();
}

DriveStack drives_of_device(uint32_t major_number, uint32_t minor_number, const std::string& root) {
  Descent descent(root);
  descent.visit_device(major_number, minor_number);
  return descent.take();
}

}  // namespace zoffload
