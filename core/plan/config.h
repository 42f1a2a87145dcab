// A DeepSpeed config file, plus one optional block "zoffload", as the plain values that the engine
// needs. The keys are the rows of core/plan/config_keys.h; what they mean to each other is decided
// here, once, for every program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/state_format.h"
#include "core/base/status.h"
#include "core/base/types.h"
#include "core/plan/config_keys.h"
#include "core/plan/parse_bytes.h"
#include "core/plan/placement.h"

namespace zoffload {

// One line of explain().
struct ResolvedKey {
  std::string key;
  std::string value;  // as JSON: the one in effect, whoever chose it
  Treatment treatment = Treatment::kHonoured;
  bool given = false;  // in the file
  std::string meaning;
};

// How the optimizer state of some parameters is stored.
struct FormatRule {
  std::string params;  // a regular expression, as the Python package reads them: re.search()
  StateFormat format;
  friend bool operator==(const FormatRule&, const FormatRule&) = default;
};

struct Config {
  uint32_t world_size = 1;
  uint32_t stage = 3;

  // train_batch_size == train_micro_batch_size_per_gpu * gradient_accumulation_steps * world_size.
  uint64_t train_batch_size = 0;
  uint64_t train_micro_batch_size_per_gpu = 0;
  uint64_t gradient_accumulation_steps = 0;

  DType dtype = DType::kFloat32;  // of parameters and gradients
  double gradient_clipping = 0;   // largest global norm; 0 is off
  bool skip_nonfinite = true;     // a NaN or Inf norm skips the update

  // Where the file has no optimizer, the caller brings one, and the fields after this are defaults.
  bool optimizer_given = false;
  std::string optimizer_title;  // "AdamW", "Adam", "SGD", "Lion", "Adagrad": what they read of ...
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double lr_decay = 0;
  double initial_accumulator_value = 0;

  StateFormat state_format;       // of what no rule is for
  std::vector<FormatRule> rules;  // the first that matches wins

  uint64_t sub_group_numel = 0;  // a subgroup has at most so many elements ...
  uint64_t subgroup_bytes = 0;   // ... and so many bytes of optimizer state
  Placement params;
  Placement optimizer;                  // master weights and moments
  std::vector<std::string> nvme_paths;  // one tier; empty if nothing is placed on NVMe
  uint64_t host_bytes = 0;              // hard budget per rank; 0 is no limit
  uint64_t device_bytes = 0;            // likewise
  uint32_t prefetch = 0;                // buckets gathered ahead
  uint32_t threads = 0;                 // CPU workers; 0 is this rank's share of the cores

  std::string io_engine;        // "auto", "uring", "libaio", "threads"
  uint64_t io_block_bytes = 0;  // of one request; a multiple of kPageBytes; 0: see OpenRequest
  uint32_t io_queue_depth = 0;  // requests in flight per path; 0: see OpenRequest
  std::string profile_file;     // for parse_profile(); empty if there is none
  bool verify_reads = true;
  bool allow_memory_paths = false;  // nvme_paths that are memory, not a disk
  double stall_timeout_seconds = 0;

  std::vector<std::string> warnings;  // one sentence each, for the user to see once
  std::vector<ResolvedKey> resolved;  // the keys given and the honoured ones, in the table's order
};

// Reads a whole file. An error lists everything that is wrong, a line each, with the key, the value
// found and what is allowed: kUnsupported if the file is right but asks for features this version
// lacks, else kInvalidArgument. REQUIRES: world_size > 0.
Result<Config> parse_config(std::string_view json_text, uint32_t world_size);

// An aligned table: key, value, treatment, meaning.
std::string explain(const Config& config);

}  // namespace zoffload
