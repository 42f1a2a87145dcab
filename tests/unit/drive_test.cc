#include "aio/drive.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <string>
#include <vector>

#include "tests/unit/fake_root.h"

namespace zoffload::test {
namespace {

constexpr const char* kNvme = "pci0000:40/0000:40:01.0/0000:41:00.0/nvme/nvme0/nvme0n1";

// As on a server: a Gen4 drive in a Gen4 slot, 2 hardware queues, on the second NUMA node.
void add_nvme(FakeRoot& root) {
  root.add_block_device("259:0", kNvme);
  root.add_block_device("259:2", std::string(kNvme) + "/nvme0n1p2");
  const std::string device = std::string("sys/devices/") + kNvme;
  root.write(device, {{"size", "7501476528"}, {"device/model", "SAMSUNG MZQL23T8HCLS-00A07  "}});
  root.write(device + "/nvme0n1p2", {{"partition", "2"}, {"size", "1000"}});
  root.write(device + "/mq/0", {{"cpu_list", "0"}});
  root.write(device + "/mq/1", {{"cpu_list", "1"}});
  root.write(device + "/queue", {{"rotational", "0"},
                                 {"logical_block_size", "512"},
                                 {"physical_block_size", "4096"},
                                 {"max_sectors_kb", "128"},
                                 {"nr_requests", "1023"},
                                 {"scheduler", "[none] mq-deadline kyber"},
                                 {"write_cache", "write through"},
                                 {"fua", "0"},
                                 {"discard_max_bytes", "2199023255040"}});
  root.write("sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0/nvme/nvme0",
             {{"transport", "pcie"}, {"numa_node", "1"}});
  root.write("sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0",
             {{"current_link_speed", "16.0 GT/s PCIe"},
              {"current_link_width", "4"},
              {"max_link_speed", "16.0 GT/s PCIe"},
              {"max_link_width", "4"}});
  root.write("sys/module/nvme/parameters/poll_queues", "8");
}

std::vector<std::string> names(const DriveStack& stack) {
  std::vector<std::string> all;
  for (const Drive& drive : stack.drives) all.push_back(drive.name);
  return all;
}

std::vector<std::string> layers(const DriveStack& stack) {
  std::vector<std::string> all;
  for (const Layer& layer : stack.layers) all.push_back(layer.name + " " + layer.kind);
  return all;
}

using Names = std::vector<std::string>;

// Goal: a partition leads to the whole drive, and each fact has its file. Method: the files of an
// NVMe drive in a server.
TEST(Drive, IsDescribedThroughItsPartition) {
  FakeRoot root;
  add_nvme(root);
  const DriveStack stack = drives_of_device(259, 2, root.path());
  EXPECT_EQ(stack.why_unknown, "");
  EXPECT_TRUE(stack.layers.empty());
  ASSERT_EQ(names(stack), Names{"nvme0n1"});
  const Drive& drive = stack.drives[0];
  EXPECT_EQ(drive.transport, "nvme");
  EXPECT_EQ(drive.model, "SAMSUNG MZQL23T8HCLS-00A07");
  EXPECT_EQ(drive.bytes, 7501476528u * 512);
  EXPECT_EQ(drive.rotational, false);
  EXPECT_EQ(drive.logical_block_bytes, 512u);
  EXPECT_EQ(drive.physical_block_bytes, 4096u);
  EXPECT_EQ(drive.request_bytes_max, 128u * 1024);
  EXPECT_EQ(drive.requests_per_queue, 1023u);
  EXPECT_EQ(drive.queue_count, 2u);
  EXPECT_EQ(drive.poll_queue_count, 8u);
  EXPECT_EQ(drive.scheduler, "none");
  EXPECT_EQ(drive.write_cache, "write through");
  EXPECT_EQ(drive.fua, false);
  EXPECT_EQ(drive.discard, true);
  EXPECT_EQ(drive.numa_node, 1u);
  ASSERT_TRUE(drive.pcie.has_value());
  EXPECT_EQ(drive.pcie->address, "0000:41:00.0");
  EXPECT_EQ(drive.pcie->gt_per_s, 16.0);
  EXPECT_EQ(drive.pcie->lanes, 4u);
  EXPECT_FALSE(drive.pcie->is_below_its_best());
}

// Goal: a link is compared with what drive and slot both can do. Method: a Gen5 drive; a slot of
// each kind; a link that a bad contact has halved; a virtual link of no known speed.
TEST(Drive, ComparesItsLinkWithWhatTheSlotCan) {
  struct Case {
    const char* lanes;
    const char* slot_speed;
    bool below;
  };
  for (const Case& slot : {Case{"4", "16.0 GT/s PCIe", false}, Case{"4", "32.0 GT/s PCIe", true},
                           Case{"2", "16.0 GT/s PCIe", true}, Case{"255", "Unknown", false},
                           Case{"0", "16.0 GT/s PCIe", false}}) {
    FakeRoot root;
    add_nvme(root);
    const std::string pci = "sys/devices/pci0000:40/0000:40:01.0/";
    root.write(pci + "max_link_speed", slot.slot_speed);
    root.write(pci + "max_link_width", "16");
    root.write(pci + "0000:41:00.0/max_link_speed", "32.0 GT/s PCIe");
    root.write(pci + "0000:41:00.0/current_link_width", slot.lanes);
    const DriveStack stack = drives_of_device(259, 0, root.path());
    ASSERT_TRUE(stack.drives.at(0).pcie.has_value());
    EXPECT_EQ(stack.drives[0].pcie->is_below_its_best(), slot.below)
        << slot.lanes << " lanes, slot " << slot.slot_speed;
  }
}

// Goal: with NVMe multipath, whose drive is a virtual device, the hardware is still found. Method:
// the files of a two-port drive.
TEST(Drive, IsFoundBehindNvmeMultipath) {
  FakeRoot root;
  const std::string controller = "sys/devices/pci0000:40/0000:41:00.0/nvme/nvme3";
  const std::string subsystem = "virtual/nvme-subsystem/nvme-subsys3";
  root.add_block_device("259:5", subsystem + "/nvme3n1");
  root.write("sys/devices/" + subsystem, {{"model", "KIOXIA CM7"}, {"nvme3n1/size", "8"}});
  root.link("sys/devices/" + subsystem + "/nvme3n1/device", "sys/devices/" + subsystem);
  root.link("sys/devices/" + subsystem + "/nvme3", controller);
  root.write(controller, {{"transport", "pcie"}, {"numa_node", "0"}, {"nvme3c3n1/mq/0/x", ""}});
  const DriveStack stack = drives_of_device(259, 5, root.path());
  ASSERT_EQ(names(stack), Names{"nvme3n1"});
  const Drive& drive = stack.drives[0];
  EXPECT_EQ(drive.model, "KIOXIA CM7");
  EXPECT_EQ(drive.transport, "nvme");
  EXPECT_EQ(drive.queue_count, 1u);
  EXPECT_EQ(drive.numa_node, 0u);
  ASSERT_TRUE(drive.pcie.has_value());
  EXPECT_EQ(drive.pcie->address, "0000:41:00.0");
}

// Goal: layers are gone through to the drives, each drive is named once. Method: encryption on a
// logical volume on two raids that share a drive.
TEST(Drive, IsFoundBelowLayers) {
  FakeRoot root;
  add_nvme(root);
  const std::string sda = "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda";
  for (const char* name : {"dm-1", "dm-0", "md0", "md1"}) {
    root.add_block_device(name, std::string("virtual/block/") + name);
  }
  root.add_block_device("8:0", sda);
  root.write("sys/devices/" + sda, {{"queue/rotational", "1"}, {"device/model", "WDC"}});
  const auto put = [&](const std::string& upper, const std::string& lower, std::string folder) {
    root.link("sys/devices/virtual/block/" + upper + "/slaves/" + lower, "sys/devices/" + folder);
  };
  put("dm-1", "dm-0", "virtual/block/dm-0");
  put("dm-0", "md0", "virtual/block/md0");
  put("dm-0", "md1", "virtual/block/md1");
  put("md0", "nvme0n1p2", std::string(kNvme) + "/nvme0n1p2");
  put("md0", "sda", sda);
  put("md1", "nvme0n1", kNvme);
  root.write("sys/devices/virtual/block", {{"dm-1/dm/uuid", "CRYPT-LUKS2-0123-data"},
                                           {"dm-0/dm/uuid", "LVM-abcdef"},
                                           {"md0/md/level", "raid5"},
                                           {"md1/md/level", "linear"}});
  root.link("sys/dev/block/253:1", "sys/devices/virtual/block/dm-1");
  const DriveStack stack = drives_of_device(253, 1, root.path());
  EXPECT_EQ(layers(stack), (Names{"dm-1 crypt", "dm-0 lvm", "md0 raid5", "md1 linear"}));
  EXPECT_EQ(names(stack), (Names{"nvme0n1", "sda"}));
  EXPECT_EQ(stack.drives.at(1).transport, "sata");
  EXPECT_EQ(stack.drives.at(1).rotational, true);
  EXPECT_EQ(stack.drives.at(1).poll_queue_count, std::nullopt);
}

// Goal: a loop device leads to the drive of its file, and a file that cannot be seen is said.
// Method: a file inside the made-up root, whose real device gets a made-up drive.
TEST(Drive, IsFoundBelowALoopDevice) {
  FakeRoot root;
  root.write("images/disk.img", "");
  struct stat facts = {};
  ASSERT_EQ(stat((root.path() + "/images/disk.img").c_str(), &facts), 0);
  if (major(facts.st_dev) == 0) GTEST_SKIP() << "the working directory is on no block device";
  const std::string numbers =
      std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev));
  add_nvme(root);
  root.link("sys/dev/block/" + numbers, std::string("sys/devices/") + kNvme);
  root.add_block_device("1007:0", "virtual/block/loop0");
  root.write("sys/devices/virtual/block/loop0/loop/backing_file", "/images/disk.img");
  const DriveStack stack = drives_of_device(1007, 0, root.path());
  EXPECT_EQ(layers(stack), Names{"loop0 loop"});
  EXPECT_EQ(names(stack), Names{"nvme0n1"});
  root.write("sys/devices/virtual/block/loop0/loop/backing_file", "/gone.img (deleted)");
  const DriveStack gone = drives_of_device(1007, 0, root.path());
  EXPECT_TRUE(gone.drives.empty());
  EXPECT_NE(gone.why_unknown.find("/gone.img"), std::string::npos);
}

// Goal: what sysfs does not show is said, and no fact is invented. Method: a root without sysfs,
// and a device without any file.
TEST(Drive, UnknownIsSaid) {
  FakeRoot root;
  EXPECT_NE(drives_of_device(259, 0, root.path()).why_unknown.find("259:0"), std::string::npos);
  root.add_block_device("259:0", "virtual/block/strange");
  const DriveStack stack = drives_of_device(259, 0, root.path());
  ASSERT_EQ(names(stack), Names{"strange"});
  const Drive& drive = stack.drives[0];
  EXPECT_EQ(drive.transport + drive.model + drive.scheduler + drive.write_cache, "");
  EXPECT_FALSE(drive.bytes || drive.rotational || drive.queue_count || drive.numa_node);
  EXPECT_FALSE(drive.pcie || drive.fua || drive.discard || drive.request_bytes_max);
}

// Goal: a missing folder is an answer too. Method: one that cannot exist.
TEST(Drive, MissingFolderIsSaid) {
  EXPECT_NE(find_drives("/nowhere/at/all").why_unknown.find("/nowhere/at/all"), std::string::npos);
}

// Goal: this machine's own folders are understood. Method: the working directory; that its drive is
// known or a reason is given.
TEST(Drive, OfThisMachine) {
  const DriveStack stack = find_drives(".");
  EXPECT_NE(stack.drives.empty(), stack.why_unknown.empty()) << stack.why_unknown;
  for (const Drive& drive : stack.drives) {
    EXPECT_FALSE(drive.name.empty());
    EXPECT_GT(drive.bytes.value_or(1), 0u);
  }
}

// Goal: file systems with a device number of their own (btrfs, overlayfs, tmpfs) are resolved by
// their mount. Method: /proc is such a one here, and mountinfo is made up.
TEST(Drive, IsFoundByTheSourceOfAMount) {
  const auto mounted = [](const std::string& what, FakeRoot& root) {
    root.write("proc/self/mountinfo", "22 1 0:21 / /proc rw,relatime shared:1 - " + what);
    return find_drives("/proc", root.path());
  };
  FakeRoot root;
  add_nvme(root);
  root.add_block_device("8:0", "virtual/block/sda");
  EXPECT_EQ(names(mounted("btrfs /dev/nvme0n1p2 rw", root)), Names{"nvme0n1"});
  root.link("sys/fs/btrfs/0123/devices/nvme0n1p2", std::string("sys/devices/") + kNvme);
  root.link("sys/fs/btrfs/0123/devices/sda", "sys/devices/virtual/block/sda");
  EXPECT_EQ(names(mounted("btrfs /dev/nvme0n1p2 rw", root)), (Names{"nvme0n1", "sda"}));
  root.link("dev/mapper/data", "dev/sda");  // as udev links to dm-0
  EXPECT_EQ(names(mounted("btrfs /dev/mapper/data rw", root)), (Names{"sda", "nvme0n1"}));

  EXPECT_EQ(mounted("nfs4 server:/export rw", root).why_unknown,
            "nfs4 is on no drive that can be seen from here");
  EXPECT_EQ(mounted("overlay overlay rw,lowerdir=/l,upperdir=/nowhere/diff", root).why_unknown,
            "the overlay's own folder is outside of this container");
  EXPECT_EQ(mounted("overlay overlay rw,upperdir=/proc", root).why_unknown,
            "the overlay lies on itself");
}

// Goal: the innermost mount counts, the last one where two hide each other, with the options of the
// mount and of the file system. Method: a made-up mountinfo with a blank in a path.
TEST(Mount, InnermostAndLastCounts) {
  FakeRoot root;
  root.write("my swap/deep/file", "");
  const std::string swap = root.path() + "/my swap";
  const std::string escaped = root.path() + "/my\\040swap";
  root.write("proc/self/mountinfo",
             "1 0 8:1 / / rw,relatime shared:1 master:2 - overlay overlay rw,upperdir=/up\n"
             "2 1 9:1 / " +
                 escaped +
                 " rw,noatime - ext4 /dev/sda1 rw,data=journal,discard\n"
                 "3 1 9:1 / " +
                 escaped +
                 " rw,noatime - xfs /dev/my\\040disk rw,attr2\n"
                 "4 1 9:2 / " +
                 escaped +
                 "/de rw - tmpfs none rw\n"
                 "a line that is none");
  const Mount mount = find_mount(swap + "/deep", root.path());
  EXPECT_EQ(mount.point, swap);
  EXPECT_EQ(mount.type, "xfs");
  EXPECT_EQ(mount.source, "/dev/my disk");
  EXPECT_EQ(mount.options, (Names{"rw", "noatime", "attr2"}));
  EXPECT_TRUE(mount.has("noatime"));
  EXPECT_FALSE(mount.has("noa"));
  const Mount outer = find_mount(root.path(), root.path());
  EXPECT_EQ(outer.point, "/");
  EXPECT_EQ(outer.value("upperdir"), "/up");
  EXPECT_EQ(outer.value("upper"), "");
  EXPECT_EQ(find_mount("/", root.path() + "/nothing").type, "");
}

}  // namespace
}  // namespace zoffload::test
