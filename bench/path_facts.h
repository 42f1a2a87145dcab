// What a folder for swap files is good for: its file system, its mount and its drives, as facts for
// the document and as findings for the user.
#pragma once

#include <string>
#include <vector>

#include "aio/drive.h"
#include "aio/probe.h"
#include "bench/finding.h"

namespace zoffload::bench {

struct PathFacts {
  IoProbe io;  // with the folder as it was given
  Mount mount;
  DriveStack stack;

  const std::string& file_system() const;  // the kernel's name, or what statfs() gave
  Json to_json() const;
};

// Looks at a folder with a small file that it removes. /proc and /sys are read below `root`.
PathFacts look_at_path(const std::string& path, const std::string& root = "/");

// A folder that cannot be used is one `fail`, and nothing else is said of it. Each mount and each
// drive is judged once.
std::vector<Finding> path_findings(const std::vector<PathFacts>& paths);

}  // namespace zoffload::bench
