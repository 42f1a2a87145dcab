// What a machine has that offloaded training depends on: the "host" object of every document, and
// the findings of `probe`. A fact that is not known is left out of the object; null stands for no
// limit and no container.
#pragma once

#include <string>
#include <vector>

#include "bench/finding.h"
#include "bench/machine.h"
#include "bench/path_facts.h"
#include "bench/result.h"

namespace zoffload::bench {

struct HostFacts {
  Json host = Json::object();
  std::vector<Finding> findings;  // the machine's, then those of the paths
};

HostFacts examine(const Machine& machine, const std::vector<PathFacts>& paths);

// The facts of this machine and these folders, with a small file in each folder that is removed.
HostFacts examine_here(const std::vector<std::string>& paths);
Json host_facts(const std::vector<std::string>& paths);  // examine_here() without the findings

}  // namespace zoffload::bench
