// zoffload-bench from its arguments to its exit code: reads the command line, runs one command, and
// prints what it measured.
#pragma once

#include <string>
#include <vector>

namespace zoffload::bench {

int run_program(int argc, const char* const* argv);

// The arguments with the spellings of DeepSpeed's tools in ours: --block_size is --block-size,
// --io_parallel is --workers, --nvme_dir is --path. Values stay as they are.
std::vector<std::string> normalize_arguments(int argc, const char* const* argv);

}  // namespace zoffload::bench
