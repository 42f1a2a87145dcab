// What a folder lies on: its mount, and the drives below that, through partitions, device-mapper,
// md and loop devices, as /proc and /sys describe them. Any of it may be missing: containers hide
// much, and every kind of drive has files of its own. `root` stands for "/", and is a folder of
// made-up files in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zoffload {

struct Mount {
  std::string point;   // "/mnt/a"; empty: not found
  std::string type;    // "ext4", as the kernel names it
  std::string source;  // "/dev/nvme0n1p1", "overlay", "server:/export"
  // Of the mount and of its file system: "noatime", "data=journal".
  std::vector<std::string> options;

  bool has(std::string_view option) const;
  std::string value(std::string_view key) const;  // of "key=value"; empty if there is none
};

// The innermost mount that holds `folder`.
Mount find_mount(const std::string& folder, const std::string& root = "/");

// A lane's rate in GT/s and the number of lanes; 0 where unknown, as in virtual machines.
struct PcieLink {
  std::string address;  // of the drive or its controller: "0000:41:00.0"
  double gt_per_s = 0;
  uint32_t lanes = 0;
  double gt_per_s_max = 0;  // what the device and its slot both can do
  uint32_t lanes_max = 0;

  bool is_below_its_best() const { return gt_per_s < gt_per_s_max || lanes < lanes_max; }
};

struct Drive {
  std::string name;       // "nvme0n1"
  std::string transport;  // "nvme", "nvme-tcp", "virtio", "sata", "usb", "memory" ... or empty
  std::string model;
  std::optional<uint64_t> bytes;
  std::optional<bool> rotational;  // virtual drives may claim it wrongly
  std::optional<uint64_t> logical_block_bytes;
  std::optional<uint64_t> physical_block_bytes;
  std::optional<uint64_t> request_bytes_max;   // longer ones are cut by the kernel
  std::optional<uint64_t> requests_per_queue;  // that wait in the kernel
  std::optional<uint64_t> queue_count;         // in hardware
  std::optional<uint64_t> poll_queue_count;    // NVMe only
  std::string scheduler;                       // "none", "mq-deadline" ...
  std::string write_cache;                     // "write back": a flush is work; "write through"
  std::optional<bool> fua;                     // single writes can be made durable
  std::optional<bool> discard;
  std::optional<uint64_t> numa_node;
  std::optional<PcieLink> pcie;
};

// A device that is made of others.
struct Layer {
  std::string name;  // "dm-0"
  std::string kind;  // "crypt", "lvm", "raid5", "loop" ...
};

struct DriveStack {
  std::vector<Layer> layers;  // from the folder down
  std::vector<Drive> drives;  // each once
  std::string why_unknown;    // why `drives` is empty or not complete; else empty
};

// The drives that hold `folder`, a real one: only what describes them is looked up below `root`.
DriveStack find_drives(const std::string& folder, const std::string& root = "/");

// The drives of a block device, by its numbers as stat() has them.
DriveStack drives_of_device(uint32_t major_number, uint32_t minor_number,
                            const std::string& root = "/");

}  // namespace zoffload
