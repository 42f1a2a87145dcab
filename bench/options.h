// The flags that several commands share, as values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aio/open_queue.h"

namespace zoffload::bench {

enum class Direct : uint8_t { kAuto, kOn, kOff };  // kOn: an error where it does not work
enum class Format : uint8_t { kTable, kJson, kCsv };

struct Options {
  std::string config_file;  // where some of the values below are from

  // Storage. Where a list has several entries, every combination is measured.
  std::vector<std::string> paths;
  uint64_t size_bytes = uint64_t{4} << 30;  // of the test file on each path
  std::vector<uint64_t> block_bytes = {1 << 20};
  std::vector<uint32_t> queue_depths = {8};
  std::vector<uint32_t> workers = {1};  // threads; for `io` each with a queue of its own per path
  std::vector<IoEngine> engines = {IoEngine::kAuto};
  Direct direct = Direct::kAuto;
  bool fixed_buffers = true;
  bool verify = false;  // XXH3 of every block
  bool force = false;   // use a path that is memory, not a disk

  // Measuring.
  double runtime_s = 10;  // of one repeat
  double warmup_s = 2;
  uint32_t repeats = 3;
  double budget_s = 0;           // of the whole command; 0: none
  uint64_t max_write_bytes = 0;  // kept to the byte; 0: none
  uint64_t seed = 1;
  int numa_node = -1;  // -1: auto, -2: off
  std::string label;
  bool dry_run = false;  // say what would be done, do nothing

  // Output.
  Format format = Format::kTable;
  const char* out_flag = "--out";  // or --json, which is short for it
  std::string out_file;            // empty: stdout
  std::string html_file;
  bool progress = true;
  bool quiet = false;
};

}  // namespace zoffload::bench
