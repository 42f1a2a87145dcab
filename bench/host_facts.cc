#include "bench/host_facts.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <system_error>
#include <utility>

#include "aio/system_file.h"
#include "core/base/format.h"
#include "cuda/available_memory.h"

namespace zoffload::bench {
namespace {

namespace fs = std::filesystem;

// The rest of the first line that starts with `key`, without the colon and blanks; else empty.
std::string line_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t start = line.find_first_not_of(" \t:=", key.size());
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string without_start(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0 ? text.substr(start.size()) : text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The machine's side: one function for each subject, which adds its facts and its findings.
class Examination {
 public:
  explicit Examination(const Machine& machine) : machine_(machine), root_(machine.root) {}

  HostFacts take() { return std::move(facts_); }

  void look_at_system() {
    std::string distribution = line_of(read("etc/os-release"), "PRETTY_NAME");
    distribution.erase(std::remove(distribution.begin(), distribution.end(), '"'),
                       distribution.end());
    host()["node"] = machine_.node;
    host()["kernel"] = machine_.kernel;
    host()["architecture"] = machine_.architecture;
    if (!distribution.empty()) host()["distribution"] = distribution;
    ok("kernel", "Linux " + machine_.kernel + " on " + machine_.architecture +
                     (distribution.empty() ? "" : ", " + distribution));
    const std::string container = container_kind();
    host()["container"] = container.empty() ? Json() : Json(container);
    ok("container", container.empty() ? "none" : container);
  }

  void look_at_cpu() {
    const std::string model = line_of(read("proc/cpuinfo"), "model name");
    Json& cpu = host()["cpu"];
    if (!model.empty()) cpu["model"] = model;
    cpu["simd_target"] = machine_.simd_target;
    const std::string level = simd_level();
    const std::string name = model.empty() ? "" : " (" + model + ")";
    if (level.empty()) {
      warn("simd", "no AVX2, NEON or SVE" + name + ": updates are several times slower", "");
    } else {
      ok("simd", level + name);
    }
    look_at_cores(cpu);
    look_at_numa();
  }

  void look_at_memory() {
    const std::string total = line_of(read("proc/meminfo"), "MemTotal");
    const uint64_t available =
        available_memory_bytes(root_ / "proc/meminfo", root_ / "sys/fs/cgroup");
    Json& memory = host()["memory"];
    if (total.empty() || available == ~uint64_t{0}) {
      warn("memory", "unknown: /proc/meminfo says nothing", "");
    } else {
      const uint64_t bytes = std::strtoull(total.c_str(), nullptr, 10) * 1024;
      memory["total_bytes"] = bytes;
      memory["available_bytes"] = available;
      ok("memory", format_bytes(available) + " available of " + format_bytes(bytes));
    }
    look_at_cgroup_memory(memory);
    look_at_memlock(memory);
    look_at_huge_pages(memory);
  }

  void look_at_io() {
    Json& uring = host()["io_uring"];
    uring["state"] = uring_state_name(machine_.uring.state);
    if (!machine_.uring.features.empty()) uring["features"] = machine_.uring.features;
    if (!machine_.uring.why.empty()) uring["why"] = machine_.uring.why;
    const bool libaio = machine_.why_no_libaio.empty();
    if (machine_.uring.state == UringState::kReady) {
      ok("io_uring", "works (" + machine_.uring.features + ")");
    } else {
      const auto [why, remedy] = split_remedy(machine_.uring.why);
      const std::string instead = libaio ? "libaio" : "a pool of threads";
      warn("io_uring", without_start(why, "io_uring ") + ": " + instead + " does the I/O", remedy);
    }
    look_at_libaio();
  }

  void look_at_accelerator() {
    const std::string version = nvidia_driver();
    Json& accelerator = host()["accelerator"];
    if (version.empty()) {
      accelerator["kind"] = "none";
      return ok("gpu", "none: host memory stands in for the accelerator's");
    }
    accelerator = {{"kind", "nvidia"}, {"driver", version}, {"models", Json::array()}};
    std::string says = "NVIDIA driver " + version;
    for (const std::string& model : nvidia_models()) {
      accelerator["models"].push_back(model);
      says += ", " + model;
    }
    ok("gpu", says);
  }

  void look_at_paths(const std::vector<PathFacts>& paths) {
    host()["paths"] = Json::array();
    for (const PathFacts& path : paths) host()["paths"].push_back(path.to_json());
    for (Finding& finding : path_findings(paths)) facts_.findings.push_back(std::move(finding));
  }

 private:
  // A reference to one of its members lasts until the next member is added.
  Json& host() { return facts_.host; }
  std::string read(const char* file) const { return read_system_file(root_ / file); }

  void ok(const char* what, const std::string& says) {
    facts_.findings.push_back({Level::kOk, what, says, ""});
  }
  void warn(const char* what, const std::string& says, const std::string& remedy) {
    facts_.findings.push_back({Level::kWarn, what, says, remedy});
  }

  // Control groups of a container may show nothing; then its mounts do.
  std::string container_kind() const {
    const std::string groups = read("proc/self/cgroup");
    const std::string mounts = read("proc/self/mountinfo");
    if (contains(groups, "kubepods") || contains(mounts, "/kubelet/pods/")) return "kubernetes";
    if (is_there(root_ / "run/.containerenv") || contains(groups, "libpod")) return "podman";
    if (is_there(root_ / ".dockerenv") || contains(groups, "/docker") ||
        contains(mounts, "/docker/containers/")) {
      return "docker";
    }
    if (contains(groups, "/lxc")) return "lxc";
    return read("run/systemd/container");  // as the manager calls itself: "systemd-nspawn"
  }

  std::string simd_level() const {
    const std::string& target = machine_.simd_target;
    if (target.rfind("AVX3", 0) == 0 || target.rfind("AVX10", 0) == 0) return "AVX-512";
    if (target == "AVX2") return "AVX2 with FMA";
    if (target.rfind("SVE", 0) == 0) return "SVE";
    if (target.rfind("NEON", 0) == 0) return "NEON";
    return "";
  }

  // The control groups of this process for `controller`, with those that hold it: the folder of
  // each, innermost first. Version 2 has one tree, version 1 one for each controller.
  void for_each_group(const std::string& controller,
                      const std::function<void(const fs::path&, int version)>& look) const {
    std::istringstream lines(read("proc/self/cgroup"));
    for (std::string line; std::getline(lines, line);) {  // "4:cpu,memory:/path", "0::/path"
      const size_t first = line.find(':');
      const size_t second = line.find(':', first + 1);
      if (first == std::string::npos || second == std::string::npos) continue;
      const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
      const bool version_2 = names == ",,";
      if (!version_2 && !contains(names, "," + controller + ",")) continue;
      fs::path top = root_ / "sys/fs/cgroup";
      if (!version_2) top /= controller;
      fs::path path = fs::path(line.substr(second + 1)).relative_path();
      for (; !path.empty(); path = path.parent_path()) look(top / path, version_2 ? 2 : 1);
      look(top, version_2 ? 2 : 1);
    }
  }

  std::optional<double> cpu_quota() const {
    std::optional<double> least;
    for_each_group("cpu", [&](const fs::path& group, int version) {
      double quota = 0, period = 0;
      if (version == 2) {
        std::istringstream(read_system_file(group / "cpu.max")) >> quota >> period;  // "max 100000"
      } else {
        quota = static_cast<double>(read_system_number(group / "cpu.cfs_quota_us").value_or(0));
        period = static_cast<double>(read_system_number(group / "cpu.cfs_period_us").value_or(0));
      }
      if (quota > 0 && period > 0) least = std::min(least.value_or(1e9), quota / period);
    });
    return least;
  }

  void look_at_cores(Json& cpu) {
    cpu["cores_usable"] = machine_.cores_usable;
    cpu["cores_total"] = machine_.cores_total;
    const std::optional<double> quota = cpu_quota();
    cpu["cgroup_cores"] = quota ? Json(*quota) : Json();
    const std::string says = std::to_string(machine_.cores_usable) + " of " +
                             std::to_string(machine_.cores_total) + " usable by this process";
    if (!quota || *quota >= machine_.cores_usable) return ok("cores", says);
    char text[96];
    std::snprintf(text, sizeof text, ", but its control group grants the time of %.3g", *quota);
    warn("cores", says + text, "raise its quota (docker run --cpus), or use as many threads");
  }

  void look_at_numa() {
    if (machine_.numa_nodes.empty()) return;
    std::string says;
    host()["numa_nodes"] = Json::array();
    for (const NumaNode& node : machine_.numa_nodes) {
      host()["numa_nodes"].push_back(
          {{"node", node.number}, {"cores", node.cores}, {"memory_bytes", node.memory_bytes}});
      says += (says.empty() ? "node " : ", node ") + std::to_string(node.number) + " with " +
              std::to_string(node.cores) + " cores and " + format_bytes(node.memory_bytes);
    }
    ok("numa", says);
  }

  void look_at_cgroup_memory(Json& memory) {
    constexpr uint64_t kUnlimited = uint64_t{1} << 60;  // version 1: no limit is about 2**63
    uint64_t least = kUnlimited;
    for_each_group("memory", [&](const fs::path& group, int version) {
      const char* file = version == 2 ? "memory.max" : "memory.limit_in_bytes";
      const std::optional<uint64_t> limit = read_system_number(group / file);
      if (is_there(group / file)) memory["cgroup_version"] = version;
      least = std::min(least, limit.value_or(kUnlimited));
    });
    memory["cgroup_limit_bytes"] = least == kUnlimited ? Json() : Json(least);
    if (least == kUnlimited) return ok("cgroup", "no memory limit");
    ok("cgroup", "memory limit " + format_bytes(least) + ": keep host_bytes well below it");
  }

  bool may_lock_more() const {
    constexpr uint64_t kIpcLock = 14;  // the number of CAP_IPC_LOCK
    const std::string mask = line_of(read("proc/self/status"), "CapEff");
    return (std::strtoull(mask.c_str(), nullptr, 16) >> kIpcLock & 1) != 0;
  }

  void look_at_memlock(Json& memory) {
    const std::optional<uint64_t> limit = machine_.memlock_bytes;
    const bool exempt = may_lock_more();
    memory["memlock_limit_bytes"] = limit ? Json(*limit) : Json();
    memory["cap_ipc_lock"] = exempt;
    if (!limit) return ok("memlock", "unlimited");
    const std::string says = format_bytes(*limit);
    if (exempt) return ok("memlock", says + ", but this process may lock more (CAP_IPC_LOCK)");
    warn("memlock", says + ": larger arenas go unregistered, I/O costs more",
         "ulimit -l unlimited, or memlock in /etc/security/limits.conf");
  }

  void look_at_huge_pages(Json& memory) {
    constexpr const char* kFile = "sys/kernel/mm/transparent_hugepage/enabled";
    const std::string choices = read(kFile);  // "always [madvise] never"
    const size_t open = choices.find('[');
    const size_t close = choices.find(']', open == std::string::npos ? 0 : open);
    const bool known = open != std::string::npos && close != std::string::npos;
    const std::string chosen = known ? choices.substr(open + 1, close - open - 1) : "";
    if (known) memory["huge_pages"] = chosen;
    if (chosen == "always" || chosen == "madvise") {
      return ok("huge pages", "transparent (" + chosen + "); none need be reserved");
    }
    warn("huge pages",
         std::string("transparent huge pages are ") + (known ? "off" : "unknown to this kernel") +
             ": I/O reaches 0.55 to 0.8 of its speed",
         known ? "echo madvise > /" + std::string(kFile) : "");
  }

  void look_at_libaio() {
    Json& libaio = host()["libaio"];
    libaio["works"] = machine_.why_no_libaio.empty();
    const std::optional<uint64_t> most = read_system_number(root_ / "proc/sys/fs/aio-max-nr");
    const std::optional<uint64_t> used = read_system_number(root_ / "proc/sys/fs/aio-nr");
    if (most) libaio["requests_max"] = *most;
    if (used) libaio["requests_used"] = *used;
    if (!machine_.why_no_libaio.empty()) {
      libaio["why"] = machine_.why_no_libaio;
      const bool full = most && used && *used >= *most;
      return warn("libaio", "does not work: " + machine_.why_no_libaio,
                  full ? "sysctl fs.aio-max-nr=1048576" : "");
    }
    std::string says = "works";
    if (most && used) {
      says += " (" + std::to_string(*used) + " of " + std::to_string(*most) + " requests in use)";
    }
    ok("libaio", says);
  }

  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  ..." -> "550.54.15"; the open one
  // writes "Open Kernel Module for x86_64" before the number.
  std::string nvidia_driver() const {
    const std::string text = read("proc/driver/nvidia/version");
    const size_t start = text.find("Kernel Module");
    if (start == std::string::npos) return "";
    std::istringstream words(text.substr(start));
    for (std::string word; words >> word;) {
      if (word.find_first_not_of("0123456789.") == std::string::npos) return word;
    }
    return "";
  }

  std::vector<std::string> nvidia_models() const {
    std::vector<std::string> models;
    std::error_code error;
    fs::directory_iterator gpu(root_ / "proc/driver/nvidia/gpus", error);
    for (; !error && gpu != fs::directory_iterator(); gpu.increment(error)) {
      const std::string model = line_of(read_system_file(gpu->path() / "information"), "Model");
      if (!model.empty()) models.push_back(model);
    }
    return models;
  }

  const Machine& machine_;
  const fs::path root_;
  HostFacts facts_;
};

}  // namespace

HostFacts examine(const Machine& machine, const std::vector<PathFacts>& paths) {
  Examination examination(machine);
  examination.look_at_system();
  examination.look_at_cpu();
  examination.look_at_memory();
  examination.look_at_io();
  examination.look_at_accelerator();
  examination.look_at_paths(paths);
  return examination.take();
}

HostFacts examine_here(const std::vector<std::string>& paths) {
  std::vector<PathFacts> facts;
  for (const std::string& path : paths) facts.push_back(look_at_path(path));
  return examine(Machine::here(), facts);
}

Json host_facts(const std::vector<std::string>& paths) { return examine_here(paths).host; }

}  // namespace zoffload::bench
