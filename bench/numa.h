// Where threads run on machines whose memory is nearer to some cores than to others.
#pragma once

#include <string>

#include "core/base/status.h"

namespace zoffload::bench {

// Keeps the calling thread, and those it starts, on those of its cores that are a node's.
// kUnsupported if there is no such node, or none of its cores is ours.
Status bind_thread_to_node(int node);

// The node of the drives that hold `path`; -1 if they have none, or not all the same one.
int node_of_path(const std::string& path);

}  // namespace zoffload::bench
