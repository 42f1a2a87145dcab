#include "bench/numa.h"

#include <sched.h>

#include <cerrno>
#include <fstream>
#include <optional>

#include "aio/drive.h"

namespace zoffload::bench {
namespace {

// The cores of a list such as "0-7,16,18-19".
cpu_set_t parse_cores(std::istream& list) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (unsigned first = 0; list >> first; list.ignore()) {
    unsigned last = first;
    if (list.peek() == '-') {
      list.ignore();
      list >> last;
    }
    for (unsigned core = first; core <= last && core < CPU_SETSIZE; ++core) CPU_SET(core, &cores);
  }
  return cores;
}

}  // namespace

Status bind_thread_to_node(int node) {
  const std::string name = "NUMA node " + std::to_string(node);
  std::ifstream list("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  if (!list) return Status(Code::kUnsupported, "--numa: this machine has no " + name);
  const cpu_set_t of_node = parse_cores(list);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
    return Status::from_errno(errno, "sched_getaffinity");
  }
  CPU_AND(&cores, &cores, &of_node);
  if (CPU_COUNT(&cores) > 0 && sched_setaffinity(0, sizeof cores, &cores) == 0) return Status();
  return Status(Code::kUnsupported, "--numa: no core of " + name + " may be used");
}

int node_of_path(const std::string& path) {
  std::optional<uint64_t> node;
  for (const Drive& drive : find_drives(path).drives) {
    if (!drive.numa_node || (node && *node != *drive.numa_node)) return -1;
    node = drive.numa_node;
  }
  return node ? static_cast<int>(*node) : -1;
}

}  // namespace zoffload::bench
