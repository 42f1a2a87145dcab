#include <gtest/gtest.h>

#include "bench/host_facts.h"
#include "tests/unit/fake_root.h"

namespace zoffload::bench {
namespace {

using test::FakeRoot;

constexpr const char* kMeminfo = "MemTotal:       8388608 kB\nMemAvailable:   2097152 kB\n";

// A machine on which all is well.
Machine good_machine(const FakeRoot& root) {
  Machine machine;
  machine.root = root.path();
  machine.node = "trainer-7";
  machine.kernel = "6.18.44";
  machine.architecture = "x86_64";
  machine.cores_usable = 8;
  machine.cores_total = 16;
  machine.simd_target = "AVX3_SPR";
  machine.numa_nodes = {{0, 4, uint64_t{4} << 30}, {1, 4, uint64_t{4} << 30}};
  machine.uring = {UringState::kReady, "", "single_issuer, defer_taskrun, submit_all"};
  return machine;
}

// The findings about one thing, as they are printed; "" if there is none.
std::string found(const HostFacts& facts, const std::string& what) {
  std::string lines;
  for (const Finding& finding : facts.findings) {
    if (finding.what == what) lines += (lines.empty() ? "" : "\n") + finding.to_string();
  }
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Goal: a server on which all is well gives facts, no warnings, and the doctor's words. Method: the
// files of such a server.
TEST(HostFacts, BareMetal) {
  const FakeRoot root({{"etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12\""},
                       {"proc/cpuinfo", "processor\t: 0\nmodel name\t: Xeon 6\nflags\t: avx2"},
                       {"proc/meminfo", kMeminfo},
                       {"proc/self/cgroup", "0::/user.slice/session-1.scope"},
                       {"proc/self/status", "Name:\tx\nCapEff:\t0000000000000000"},
                       {"sys/fs/cgroup/user.slice/memory.max", "max"},
                       {"sys/fs/cgroup/user.slice/cpu.max", "max 100000"},
                       {"sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"},
                       {"proc/sys/fs/aio-max-nr", "65536"},
                       {"proc/sys/fs/aio-nr", "12"},
                       {"proc/driver/nvidia/version",
                        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5"},
                       {"proc/driver/nvidia/gpus/0000:17:00.0/information",
                        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18"}});
  const HostFacts facts = examine(good_machine(root), {});
  for (const Finding& finding : facts.findings) {
    EXPECT_EQ(finding.level, Level::kOk) << finding.says;
  }
  EXPECT_EQ(found(facts, "kernel"),
            "ok    kernel      Linux 6.18.44 on x86_64, Debian GNU/Linux 12");
  EXPECT_EQ(found(facts, "container"), "ok    container   none");
  EXPECT_EQ(found(facts, "simd"), "ok    simd        AVX-512 (Xeon 6)");
  EXPECT_EQ(found(facts, "cores"), "ok    cores       8 of 16 usable by this process");
  EXPECT_EQ(found(facts, "numa"),
            "ok    numa        node 0 with 4 cores and 4.00 GiB, node 1 with 4 cores and 4.00 GiB");
  EXPECT_EQ(found(facts, "memory"), "ok    memory      2.00 GiB available of 8.00 GiB");
  EXPECT_EQ(found(facts, "cgroup"), "ok    cgroup      no memory limit");
  EXPECT_EQ(found(facts, "memlock"), "ok    memlock     unlimited");
  EXPECT_EQ(found(facts, "huge pages"),
            "ok    huge pages  transparent (madvise); none need be reserved");
  EXPECT_TRUE(contains(found(facts, "io_uring"), "works (single_issuer"));
  EXPECT_EQ(found(facts, "libaio"), "ok    libaio      works (12 of 65536 requests in use)");
  EXPECT_EQ(found(facts, "gpu"),
            "ok    gpu         NVIDIA driver 550.54.15, NVIDIA H100 80GB HBM3");

  const Json& host = facts.host;
  EXPECT_EQ(host["node"], "trainer-7");
  EXPECT_TRUE(host["container"].is_null());
  EXPECT_EQ(host["cpu"]["simd_target"], "AVX3_SPR");
  EXPECT_EQ(host["cpu"]["cores_usable"], 8);
  EXPECT_TRUE(host["cpu"]["cgroup_cores"].is_null());
  EXPECT_EQ(host["numa_nodes"][1]["memory_bytes"], uint64_t{4} << 30);
  EXPECT_EQ(host["memory"]["total_bytes"], uint64_t{8} << 30);
  EXPECT_EQ(host["memory"]["available_bytes"], uint64_t{2} << 30);
  EXPECT_EQ(host["memory"]["cgroup_version"], 2);
  EXPECT_TRUE(host["memory"]["cgroup_limit_bytes"].is_null());
  EXPECT_TRUE(host["memory"]["memlock_limit_bytes"].is_null());
  EXPECT_EQ(host["io_uring"]["state"], "ok");
  EXPECT_EQ(host["libaio"]["requests_max"], 65536);
  EXPECT_EQ(host["accelerator"]["driver"], "550.54.15");
  EXPECT_EQ(host["accelerator"]["models"][0], "NVIDIA H100 80GB HBM3");
  EXPECT_TRUE(host["paths"].empty());
}

// Goal: a container with docker's seccomp profile and limits says which of them slow it down, with
// the remedy. Method: the files of control groups v2, and a ring that is denied.
TEST(HostFacts, DockerWithSeccomp) {
  FakeRoot root({{".dockerenv", ""},
                 {"proc/meminfo", kMeminfo},
                 {"proc/self/cgroup", "0::/"},
                 {"proc/self/status", "Name:\tx\nCapEff:\t00000000a80425fb"},
                 {"sys/fs/cgroup/memory.max", "1073741824"},
                 {"sys/fs/cgroup/memory.current", "536870912"},
                 {"sys/fs/cgroup/cpu.max", "150000 100000"},
                 {"sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"}});
  Machine machine = good_machine(root);
  machine.memlock_bytes = 8 << 20;
  machine.uring = {UringState::kDenied, "io_uring is denied by seccomp (EPERM); allow it", ""};
  HostFacts facts = examine(machine, {});
  EXPECT_EQ(found(facts, "container"), "ok    container   docker");
  EXPECT_EQ(found(facts, "cgroup"),
            "ok    cgroup      memory limit 1.00 GiB: keep host_bytes well below it");
  EXPECT_EQ(found(facts, "memory"), "ok    memory      512.0 MiB available of 8.00 GiB");
  EXPECT_EQ(found(facts, "cores"),
            "warn  cores       8 of 16 usable by this process, but its control group grants the "
            "time of 1.5 -> raise its quota (docker run --cpus), or use as many threads");
  EXPECT_EQ(found(facts, "memlock"),
            "warn  memlock     8.00 MiB: larger arenas go unregistered, I/O costs more -> "
            "ulimit -l unlimited, or memlock in /etc/security/limits.conf");
  EXPECT_EQ(found(facts, "io_uring"),
            "warn  io_uring    is denied by seccomp (EPERM): libaio does the I/O -> allow it");
  EXPECT_EQ(found(facts, "gpu"),
            "ok    gpu         none: host memory stands in for the accelerator's");
  EXPECT_EQ(facts.host["cpu"]["cgroup_cores"], 1.5);
  EXPECT_EQ(facts.host["memory"]["cgroup_limit_bytes"], 1 << 30);
  EXPECT_EQ(facts.host["memory"]["cap_ipc_lock"], false);
  EXPECT_EQ(facts.host["io_uring"]["state"], "denied");

  machine.why_no_libaio = "Operation not permitted";
  facts = examine(machine, {});
  EXPECT_TRUE(contains(found(facts, "io_uring"), ": a pool of threads does the I/O"));
  EXPECT_EQ(found(facts, "libaio"), "warn  libaio      does not work: Operation not permitted");
  root.write("proc/self/status", "CapEff:\t0000000000004000");
  EXPECT_TRUE(contains(found(examine(machine, {}), "memlock"), "ok    memlock     8.00 MiB, but"));
}

// Goal: an old kernel, or one that hides its files, is warned of and nothing is invented. Method:
// an empty root.
TEST(HostFacts, OldKernelThatSaysNothing) {
  const FakeRoot root;
  Machine machine = good_machine(root);
  machine.uring = {UringState::kAbsent, "io_uring is missing (ENOSYS); update the kernel", ""};
  machine.simd_target = "SSE4";
  machine.numa_nodes.clear();
  const HostFacts facts = examine(machine, {});
  EXPECT_TRUE(contains(found(facts, "memory"), "warn  memory      unknown"));
  EXPECT_TRUE(contains(found(facts, "huge pages"),
                       "warn  huge pages  transparent huge pages are "
                       "unknown to this kernel"));
  EXPECT_TRUE(contains(found(facts, "io_uring"), "warn  io_uring    is missing"));
  EXPECT_TRUE(contains(found(facts, "simd"), "warn  simd        no AVX2, NEON or SVE: updates"));
  EXPECT_EQ(found(facts, "numa"), "");
  EXPECT_EQ(found(facts, "cgroup"), "ok    cgroup      no memory limit");
  EXPECT_FALSE(facts.host.contains("distribution"));
  EXPECT_FALSE(facts.host["cpu"].contains("model"));
  EXPECT_FALSE(facts.host["memory"].contains("total_bytes"));
  EXPECT_FALSE(facts.host["memory"].contains("cgroup_version"));
  EXPECT_FALSE(facts.host["memory"].contains("huge_pages"));
  EXPECT_FALSE(facts.host["libaio"].contains("requests_max"));
}

// Goal: huge pages that are switched off have the remedy. Method: the file says never.
TEST(HostFacts, HugePagesOff) {
  const FakeRoot root({{"sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"}});
  EXPECT_EQ(found(examine(good_machine(root), {}), "huge pages"),
            "warn  huge pages  transparent huge pages are off: I/O reaches 0.55 to 0.8 of its "
            "speed -> echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

// Goal: libaio without free requests has the remedy. Method: the kernel's count is at its limit.
TEST(HostFacts, LibaioIsUsedUp) {
  const FakeRoot root({{"proc/sys/fs/aio-max-nr", "65536"}, {"proc/sys/fs/aio-nr", "65536"}});
  Machine machine = good_machine(root);
  machine.why_no_libaio = "Resource temporarily unavailable";
  EXPECT_TRUE(contains(found(examine(machine, {}), "libaio"), "-> sysctl fs.aio-max-nr=1048576"));
}

// Goal: control groups of version 1, alone or beside version 2, count with all that hold them, and
// their number for "no limit" is none. Method: limits at two heights, in the trees of controllers.
TEST(HostFacts, ControlGroupsOfVersion1) {
  FakeRoot root({{"proc/self/cgroup",
                  "9:name=systemd:/\n4:memory,hugetlb:/docker/ab\n"
                  "2:cpuacct,cpu:/docker/ab\n0::/"},
                 {"sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "9223372036854771712"},
                 {"sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us", "-1"},
                 {"sys/fs/cgroup/cpu/docker/ab/cpu.cfs_period_us", "100000"}});
  HostFacts facts = examine(good_machine(root), {});
  EXPECT_EQ(found(facts, "cgroup"), "ok    cgroup      no memory limit");
  EXPECT_EQ(facts.host["memory"]["cgroup_version"], 1);
  EXPECT_TRUE(facts.host["cpu"]["cgroup_cores"].is_null());
  EXPECT_EQ(facts.host["container"], "docker");

  root.write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "3221225472");
  root.write("sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us", "400000");
  root.write("sys/fs/cgroup/cpu/docker",
             {{"cpu.cfs_quota_us", "200000"}, {"cpu.cfs_period_us", "100000"}});
  facts = examine(good_machine(root), {});
  EXPECT_TRUE(contains(found(facts, "cgroup"), "memory limit 3.00 GiB"));
  EXPECT_EQ(facts.host["cpu"]["cgroup_cores"], 2.0);
}

// Goal: each kind of container is recognised by any of its signs. Method: one sign at a time.
TEST(HostFacts, NamesTheContainer) {
  struct Case {
    const char* file;
    const char* text;
    const char* container;
  };
  const Case cases[] = {
      {"proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-2.scope", "kubernetes"},
      {"proc/self/mountinfo", "1 0 8:1 /var/lib/kubelet/pods/1/etc-hosts /etc/hosts", "kubernetes"},
      {"proc/self/mountinfo", "1 0 8:1 /var/lib/docker/containers/1/hostname /etc/x", "docker"},
      {"proc/self/cgroup", "4:memory:/docker/0123", "docker"},
      {"run/.containerenv", "engine=\"podman\"", "podman"},
      {"proc/self/cgroup", "0::/machine.slice/libpod-0123.scope", "podman"},
      {"proc/self/cgroup", "0::/lxc.payload.web", "lxc"},
      {"run/systemd/container", "systemd-nspawn", "systemd-nspawn"}};
  for (const Case& sign : cases) {
    FakeRoot root;
    root.write(sign.file, sign.text);
    EXPECT_EQ(examine(good_machine(root), {}).host["container"], sign.container) << sign.text;
  }
}

// Goal: the doctor and the probe use the same words for instruction sets and drivers. Method: the
// names that Highway has, and both forms of NVIDIA's version.
TEST(HostFacts, NamesInstructionSetsAndDrivers) {
  FakeRoot root;
  Machine machine = good_machine(root);
  const std::pair<const char*, const char*> levels[] = {{"AVX2", "AVX2 with FMA"},
                                                        {"AVX3", "AVX-512"},
                                                        {"AVX10_2", "AVX-512"},
                                                        {"NEON_BF16", "NEON"},
                                                        {"SVE2_128", "SVE"}};
  for (const auto& [target, level] : levels) {
    machine.simd_target = target;
    EXPECT_EQ(found(examine(machine, {}), "simd"), std::string("ok    simd        ") + level);
  }
  root.write("proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build");
  EXPECT_EQ(found(examine(machine, {}), "gpu"), "ok    gpu         NVIDIA driver 570.86.10");
}

// Goal: this machine is described whole. Method: the facts that every machine has; the folder of
// the test, which stays empty.
TEST(HostFacts, OfThisMachine) {
  const test::TempFolder folder;
  const HostFacts facts = examine_here({folder.path()});
  const Json& host = facts.host;
  EXPECT_FALSE(host["node"].get<std::string>().empty());
  EXPECT_GE(host["cpu"]["cores_usable"], 1);
  EXPECT_LE(host["cpu"]["cores_usable"], host["cpu"]["cores_total"]);
  EXPECT_GT(host["memory"]["total_bytes"], host["memory"]["available_bytes"]);
  EXPECT_EQ(host["paths"][0]["path"], folder.path());
  EXPECT_EQ(host["paths"][0]["usable"], true);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  uint32_t cores = 0;
  for (const NumaNode& node : Machine::here().numa_nodes) cores += node.cores;
  EXPECT_GE(cores, host["cpu"]["cores_usable"]);
  EXPECT_FALSE(contains(host.dump(), "findings"));
}

}  // namespace
}  // namespace zoffload::bench
