#include <gtest/gtest.h>

#include <cerrno>

#include "bench/path_facts.h"
#include "tests/unit/fake_root.h"

namespace zoffload::bench {
namespace {

// A folder on which all is well: ext4 on one NVMe drive.
PathFacts good_path(const std::string& folder = "/mnt/a", const std::string& drive = "nvme0n1") {
  PathFacts path;
  path.io.folder = folder;
  path.io.file_system = "ext4";
  path.io.free_bytes = uint64_t{100} << 30;
  path.io.direct = true;
  path.io.direct_alignment = 512;
  path.mount = {folder, "ext4", "/dev/" + drive, {"rw", "noatime"}};
  Drive nvme;
  nvme.name = drive;
  nvme.transport = "nvme";
  path.stack.drives = {nvme};
  return path;
}

std::string lines(const std::vector<PathFacts>& paths) {
  std::string text;
  for (const Finding& finding : path_findings(paths)) text += finding.to_string() + "\n";
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Goal: a good folder is two lines, and its drive's line has all that is known. Method: a drive of
// which nothing is known, and one of which all is.
TEST(PathFindings, GoodFolder) {
  PathFacts path = good_path();
  EXPECT_EQ(lines({path}),
            "ok    nvme path   /mnt/a: 100.0 GiB free, ext4, direct I/O in units of 512 B\n"
            "ok    drive       nvme0n1: nvme\n");
  Drive& drive = path.stack.drives[0];
  drive.model = "PM1733";
  drive.bytes = uint64_t{2} << 40;
  drive.pcie = PcieLink{"0000:41:00.0", 16, 4, 16, 4};
  drive.numa_node = 1;
  drive.queue_count = 64;
  drive.requests_per_queue = 1023;
  drive.request_bytes_max = 128 << 10;
  drive.scheduler = "none";
  drive.write_cache = "write back";
  EXPECT_EQ(path_findings({path}).at(1).to_string(),
            "ok    drive       nvme0n1: PM1733, 2.00 TiB, nvme, PCIe 16 GT/s x4 at 0000:41:00.0, "
            "NUMA node 1, 64 queues of 1023, requests up to 128.0 KiB, scheduler none, write back");
}

// Goal: a folder that cannot be used is one failure with a remedy. Method: errors with and without
// a remedy of their own.
TEST(PathFindings, UnusableFolder) {
  PathFacts path = good_path();
  path.io.status = Status(Code::kInvalidArgument, "/mnt/a: no such folder; create it", ENOENT);
  EXPECT_EQ(lines({path}), "fail  nvme path   /mnt/a: no such folder -> create it\n");
  path.io.status = Status::from_errno(EIO, "/mnt/a");
  EXPECT_EQ(lines({path}),
            "fail  nvme path   /mnt/a: Input/output error -> choose another folder, or change its "
            "owner\n");
}

// Goal: each unfit file system is warned of with its remedy. Method: one at a time.
TEST(PathFindings, UnfitFileSystems) {
  struct Case {
    const char* file_system;
    bool is_memory;
    bool is_overlay;
    const char* says;
    const char* remedy;
  };
  const Case cases[] = {
      {"tmpfs", true, false, "this is memory, not a disk", "choose a folder on an NVMe drive"},
      {"overlay", false, true, "a container's own layer", "mount a folder of an NVMe drive into"},
      {"nfs4", false, false, "slower than a local ext4 or XFS", "a local NVMe drive"},
      {"fuse.sshfs", false, false, "slower than a local ext4 or XFS", "a local NVMe drive"},
      {"btrfs", false, false, "it copies on write", "chattr +C"},
      {"zfs", false, false, "it copies on write", "choose ext4 or XFS"}};
  for (const Case& unfit : cases) {
    PathFacts path = good_path();
    path.mount.type = unfit.file_system;
    path.io.is_memory = unfit.is_memory;
    path.io.is_overlay = unfit.is_overlay;
    const Finding finding = path_findings({path}).front();
    EXPECT_EQ(finding.level, Level::kWarn) << unfit.file_system;
    EXPECT_TRUE(contains(finding.says, unfit.says)) << finding.says;
    EXPECT_TRUE(contains(finding.remedy, unfit.remedy)) << finding.remedy;
  }
}

// Goal: missing direct I/O is a warning with the reason. Method: ext4 that says why not.
TEST(PathFindings, NoDirectIo) {
  PathFacts path = good_path();
  path.io.direct = false;
  path.io.why_not_direct = "the file system refuses O_DIRECT";
  EXPECT_TRUE(contains(lines({path}),
                       "warn  nvme path   /mnt/a: 100.0 GiB free, ext4, no direct "
                       "I/O: the file system refuses O_DIRECT -> choose"));
}

// Goal: each harmful mount option is warned of, and harmless ones are not. Method: one at a time.
TEST(PathFindings, MountOptions) {
  using Options = std::vector<std::string>;
  const auto mounted = [](Options options) {
    PathFacts path = good_path();
    path.mount.options = std::move(options);
    return lines({path});
  };
  EXPECT_TRUE(contains(mounted({"rw", "noatime", "data=journal"}), "data=ordered"));
  EXPECT_TRUE(contains(mounted({"rw", "noatime", "discard"}), "fstrim.timer"));
  EXPECT_TRUE(contains(mounted({"rw", "noatime", "sync"}), "waits for a flush"));
  EXPECT_TRUE(contains(mounted({"rw", "noatime", "barrier=0"}), "power cut"));
  EXPECT_TRUE(contains(mounted({"rw", "noatime", "nobarrier"}), "power cut"));
  EXPECT_TRUE(contains(mounted({"rw"}), "mount it with noatime"));
  EXPECT_FALSE(contains(mounted({"rw", "relatime", "data=ordered"}), "warn"));
  EXPECT_FALSE(contains(mounted({}), "warn"));
}

// Goal: two folders of one mount do not repeat its faults. Method: both on a mount with one fault.
TEST(PathFindings, AMountIsJudgedOnce) {
  PathFacts path = good_path();
  path.mount.options = {"rw", "noatime", "discard"};
  const std::string text = lines({path, path});
  EXPECT_TRUE(contains(text, "/mnt/a has discard"));
  EXPECT_EQ(text.find("has discard"), text.rfind("has discard"));
}

// Goal: each fault of a drive is warned of. Method: one at a time; and a virtual drive, which calls
// itself rotational without knowing.
TEST(PathFindings, FaultsOfDrives) {
  const auto with = [](void (*change)(Drive&)) {
    PathFacts path = good_path();
    change(path.stack.drives[0]);
    return lines({path});
  };
  EXPECT_TRUE(contains(with([](Drive& d) { d.rotational = true; }), "nvme0n1 is a rotating disk"));
  const auto make_virtual = [](Drive& d) {
    d.transport = "virtio";
    d.rotational = true;
  };
  EXPECT_FALSE(contains(with(make_virtual), "warn"));
  EXPECT_TRUE(contains(with([](Drive& d) { d.transport = "usb"; }), "is behind USB"));
  EXPECT_TRUE(contains(with([](Drive& d) { d.transport = "memory"; }), "is memory, not a disk"));
  EXPECT_TRUE(contains(with([](Drive& d) { d.transport = "nvme-tcp"; }), "behind a network"));
  EXPECT_TRUE(contains(with([](Drive& d) { d.scheduler = "bfq"; }),
                       "-> echo none > /sys/block/nvme0n1/queue/scheduler"));
  EXPECT_TRUE(contains(with([](Drive& d) {
                         d.pcie = PcieLink{"0000:41:00.0", 8, 4, 16, 4};
                       }),
                       "has a link of PCIe 8 GT/s x4 at 0000:41:00.0, and could have PCIe 16 GT/s "
                       "x4 at 0000:41:00.0 -> reseat"));
  EXPECT_FALSE(contains(with([](Drive& d) { d.pcie = PcieLink{"0000:41:00.0"}; }), "warn"));
}

// Goal: layers that cost much are warned of, a stripe is not. Method: one at a time.
TEST(PathFindings, Layers) {
  const auto on = [](const Layer& layer) {
    PathFacts path = good_path();
    path.stack.layers = {layer};
    return lines({path});
  };
  EXPECT_TRUE(contains(on({"dm-0", "crypt"}), "warn  drive       dm-0 (crypt) encrypts"));
  EXPECT_TRUE(contains(on({"md0", "raid5"}), "warn  drive       md0 (raid5) writes parity"));
  EXPECT_TRUE(contains(on({"loop0", "loop"}), "warn  drive       loop0 (loop) is a file"));
  EXPECT_TRUE(contains(on({"md0", "raid0"}), "ok    drive       md0 (raid0) hides"));
  EXPECT_EQ(on({"dm-0", "lvm"}), lines({good_path()}));
}

// Goal: folders that share a drive are warned of, others are not, and a drive is described once.
// Method: three folders on two drives.
TEST(PathFindings, SharedDrives) {
  const std::string text =
      lines({good_path("/mnt/a"), good_path("/mnt/b", "nvme1n1"), good_path("/mnt/c")});
  EXPECT_TRUE(contains(text, "warn  drive       nvme0n1 holds /mnt/a and /mnt/c, which share"));
  EXPECT_FALSE(contains(text, "nvme1n1 holds"));
  EXPECT_EQ(text.find("nvme0n1: nvme"), text.rfind("nvme0n1: nvme"));
}

// Goal: why a drive is unknown is said, except of memory, which has none. Method: both.
TEST(PathFindings, UnknownDrives) {
  PathFacts path = good_path();
  path.stack = {{}, {}, "nfs4 is on no drive"};
  EXPECT_TRUE(contains(lines({path}), "ok    drive       unknown below /mnt/a: nfs4 is on no"));
  path.io.is_memory = true;
  EXPECT_FALSE(contains(lines({path}), "unknown"));
}

// Goal: the object has what is known and leaves out what is not. Method: a drive with few facts,
// and a folder that cannot be used.
TEST(PathFacts, AsJson) {
  PathFacts path = good_path();
  path.stack.layers = {{"dm-0", "lvm"}};
  path.stack.drives[0].bytes = 4096;
  path.stack.drives[0].rotational = false;
  path.stack.drives[0].pcie = PcieLink{"0000:41:00.0", 8, 4, 16, 4};
  const Json json = path.to_json();
  EXPECT_EQ(json["usable"], true);
  EXPECT_EQ(json["file_system"], "ext4");
  EXPECT_EQ(json["mount_point"], "/mnt/a");
  EXPECT_EQ(json["mount_options"], Json({"rw", "noatime"}));
  EXPECT_EQ(json["direct_alignment_bytes"], 512);
  EXPECT_EQ(json["free_bytes"], uint64_t{100} << 30);
  EXPECT_EQ(json["layers"][0]["kind"], "lvm");
  EXPECT_EQ(json["drives"][0]["capacity_bytes"], 4096);
  EXPECT_EQ(json["drives"][0]["rotational"], false);
  EXPECT_EQ(json["drives"][0]["pcie"]["gigatransfers_per_s_max"], 16);
  for (const char* unknown : {"model", "scheduler", "numa_node", "queue_count"}) {
    EXPECT_FALSE(json["drives"][0].contains(unknown)) << unknown;
  }
  path.io.status = Status::from_errno(EIO, "/mnt/a");
  EXPECT_EQ(path.to_json(), Json({{"path", "/mnt/a"},
                                  {"usable", false},
                                  {"why_unusable", "/mnt/a: Input/output error"}}));
}

// Goal: a real folder is looked at with the files of the root that is given. Method: a made-up
// mountinfo for this folder, and a folder that is missing.
TEST(PathFacts, LookAtARealFolder) {
  test::FakeRoot root;
  root.write("swap/x", "");
  const std::string folder = root.path() + "/swap";
  root.write("proc/self/mountinfo", "2 1 9:1 / " + folder + " rw,noatime - xfs /dev/sda1 rw,attr2");
  const PathFacts path = look_at_path(folder, root.path());
  EXPECT_TRUE(path.io.status.ok()) << path.io.status.to_string();
  EXPECT_EQ(path.file_system(), "xfs");
  EXPECT_TRUE(path.stack.drives.empty());
  EXPECT_FALSE(path.stack.why_unknown.empty());
  EXPECT_EQ(look_at_path(folder, root.path() + "/nothing").file_system(), path.io.file_system);
  EXPECT_FALSE(look_at_path(root.path() + "/missing").io.status.ok());
}

}  // namespace
}  // namespace zoffload::bench
