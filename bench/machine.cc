#include "bench/machine.h"

#include <hwloc.h>
#include <linux/aio_abi.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "optim/simd_targets.h"

namespace zoffload::bench {
namespace {

uint32_t count_usable_cores(uint32_t total) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  // Fails where there are more cores than the set has room for: then all count.
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return total;
  return static_cast<uint32_t>(CPU_COUNT(&usable));
}

std::vector<NumaNode> find_numa_nodes() {
  std::vector<NumaNode> nodes;
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return nodes;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_obj_t object = nullptr;
    while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
      nodes.push_back({object->os_index,
                       static_cast<uint32_t>(std::max(hwloc_bitmap_weight(object->cpuset), 0)),
                       object->attr->numanode.local_memory});
    }
  }
  hwloc_topology_destroy(topology);
  return nodes;
}

// Sets up a context for one request, as libaio does, and takes it down.
std::string try_libaio() {
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, 1, &context) != 0) return std::strerror(errno);
  syscall(SYS_io_destroy, context);
  return "";
}

}  // namespace

Machine Machine::here() {
  Machine machine;
  utsname system = {};
  if (uname(&system) == 0) {
    machine.node = system.nodename;
    machine.kernel = system.release;
    machine.architecture = system.machine;
  }
  machine.cores_total = static_cast<uint32_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  machine.cores_usable = count_usable_cores(machine.cores_total);
  machine.simd_target = simd_targets().front();
  machine.numa_nodes = find_numa_nodes();
  rlimit memlock = {};
  if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0 && memlock.rlim_cur != RLIM_INFINITY) {
    machine.memlock_bytes = memlock.rlim_cur;
  }
  machine.uring = probe_uring();
  machine.why_no_libaio = try_libaio();
  return machine;
}

}  // namespace zoffload::bench
