#include "core/plan/config.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/check.h"
#include "core/plan/config_optimizer.h"
#include "core/plan/config_values.h"
#include "core/plan/json_text.h"

namespace zoffload {
namespace {

constexpr const char* kTrainBatch = "train_batch_size";
constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
constexpr const char* kMicroSteps = "gradient_accumulation_steps";
constexpr const char* kParamBlock = "zero_optimization.offload_param";
constexpr const char* kOptimizerBlock = "zero_optimization.offload_optimizer";

// What is not given is filled by integer division, as DeepSpeed does; then all three must multiply
// out.
void read_batch(ConfigValues& values, Config& config, Problems& problems) {
  const auto count = [&](const char* key) -> std::optional<uint64_t> {
    return values.given(key) ? std::optional(values.get<uint64_t>(key)) : std::nullopt;
  };
  const std::optional<uint64_t> train = count(kTrainBatch);
  const std::optional<uint64_t> micro = count(kMicroBatch);
  const std::optional<uint64_t> steps = count(kMicroSteps);
  const uint64_t world = config.world_size;
  if (!train && !micro) {
    problems.mistake(std::string(kTrainBatch) + ": found nothing; allowed: a value for it or for " +
                     kMicroBatch);
    return;
  }
  config.train_micro_batch_size_per_gpu = micro ? *micro : *train / world / steps.value_or(1);
  const uint64_t samples = config.train_micro_batch_size_per_gpu * world;  // < 2^62
  const uint64_t divided = train && samples > 0 ? *train / samples : 1;
  config.gradient_accumulation_steps = steps ? *steps : divided;

  constexpr double kMost = 1e18;
  const double product =
      static_cast<double>(samples) * static_cast<double>(config.gradient_accumulation_steps);
  const bool fits = product < kMost;
  config.train_batch_size =
      train ? *train : (fits ? samples * config.gradient_accumulation_steps : 0);
  if (!fits || config.train_batch_size != samples * config.gradient_accumulation_steps) {
    const auto text = [](std::optional<uint64_t> value, uint64_t filled) {
      return std::to_string(value.value_or(filled)) + (value ? "" : " (filled in)");
    };
    problems.mistake(std::string(kTrainBatch) + ": found " + text(train, config.train_batch_size) +
                     "; allowed: " + kMicroBatch + " " +
                     text(micro, config.train_micro_batch_size_per_gpu) + " * " + kMicroSteps +
                     " " + text(steps, config.gradient_accumulation_steps) + " * world size " +
                     std::to_string(world));
    return;
  }
  values.resolve(kTrainBatch, config.train_batch_size);
  values.resolve(kMicroBatch, config.train_micro_batch_size_per_gpu);
  values.resolve(kMicroSteps, config.gradient_accumulation_steps);
}

void read_precision(const ConfigValues& values, Config& config, Problems& problems) {
  const bool bf16 = values.get<bool>("bf16.enabled");
  if (bf16 && values.get<bool>("fp16.enabled")) {
    problems.mistake("bf16.enabled and fp16.enabled: found true and true; allowed: one of them");
  }
  config.dtype = bf16 ? DType::kBFloat16 : DType::kFloat32;
  config.gradient_clipping = values.get<double>("gradient_clipping");
  config.skip_nonfinite = values.get<bool>("zoffload.skip_nonfinite");
}

// DeepSpeed's keys ask for fewer bits in bf16 models only; zoffload's own wins over them.
void read_state_format(ConfigValues& values, Config& config) {
  constexpr const char* kFormat = "zoffload.state_format";
  constexpr const char* kMaster = "bf16.bf16_master_weights_and_grads";
  constexpr const char* kMoments = "bf16.bf16_optimizer_states";
  constexpr const char* kMomentsToo = "optimizer.params.fp32_optimizer_states";
  const bool bf16 = config.dtype == DType::kBFloat16;
  const bool split = bf16 && values.get<bool>(kMaster);
  const bool narrow = bf16 && (values.get<bool>(kMoments) || !values.get<bool>(kMomentsToo));
  if (values.given(kFormat)) {
    config.state_format = state_format_named(values.get<std::string>(kFormat)).value();
    for (const char* key : {kMaster, kMoments, kMomentsToo}) {
      if (values.given(key)) values.warn(std::string(key) + " gives way to " + kFormat);
    }
  } else {
    config.state_format = {split ? MasterFormat::kSplit : MasterFormat::kFloat32,
                           narrow ? MomentFormat::kBFloat16 : MomentFormat::kFloat32};
    values.resolve(kFormat, std::string(state_format_name(config.state_format)));
  }
  bool asks_for_split = config.state_format.master == MasterFormat::kSplit;
  for (const nlohmann::json& rule : values.at("zoffload.rules")) {
    if (!rule.contains("state_format")) continue;  // was refused
    const auto name = rule["state_format"].get<std::string>();
    config.rules.push_back({rule["params"].get<std::string>(), state_format_named(name).value()});
    asks_for_split |= config.rules.back().format.master == MasterFormat::kSplit;
  }
  if (asks_for_split && !bf16) {
    values.warn(std::string(kFormat) +
                ": fp32 parameters are their own master, so that there is none to split");
  }
}

void read_stage(const ConfigValues& values, Config& config, Problems& problems) {
  constexpr uint32_t kStage = 3;
  config.stage = values.get<uint32_t>("zero_optimization.stage");
  if (config.stage == kStage) return;
  const std::string by_default = values.given("zero_optimization.stage") ? "" : " by default";
  problems.refuse("zero_optimization.stage: found " + std::to_string(config.stage) + by_default +
                  "; stage 3 is what this version has");
  if (values.get<std::string>(std::string(kParamBlock) + ".device") != "none") {
    problems.mistake(std::string(kParamBlock) + ".device: found " +
                     found(values.at(std::string(kParamBlock) + ".device")) + " with stage " +
                     std::to_string(config.stage) + "; allowed: only with stage 3");
  }
}

// The homes of one kind of shard: zoffload's `key` where it is given, else the device in
// DeepSpeed's `block`. Adds the paths it needs to config.nvme_paths.
Placement read_placement(ConfigValues& values, const std::string& block, const std::string& key,
                         Config& config, Problems& problems) {
  const std::string device_key = block + ".device";
  const std::string path_key = block + ".nvme_path";
  Placement placement;
  if (values.given(key)) {
    const nlohmann::json& shares = values.at(key);
    placement = {shares["hbm"].get<double>(), shares["host"].get<double>(),
                 shares["nvme"].get<double>()};
    if (values.given(device_key)) values.warn(device_key + " gives way to " + key);
  } else {
    const auto device = values.get<std::string>(device_key);
    placement = {device == "none" ? 1.0 : 0, device == "cpu" ? 1.0 : 0, device == "nvme" ? 1.0 : 0};
    values.resolve(key,
                   {{"hbm", placement.hbm}, {"host", placement.host}, {"nvme", placement.nvme}});
  }
  if (placement.nvme == 0) return placement;

  std::vector<std::string> paths = values.get<std::vector<std::string>>("zoffload.nvme_path");
  if (paths.empty() && values.given(path_key)) paths = {values.get<std::string>(path_key)};
  if (paths.empty() || std::find(paths.begin(), paths.end(), "") != paths.end()) {
    problems.mistake(path_key + ": found " + found(values.at(path_key)) +
                     "; allowed: a folder, here or in zoffload.nvme_path, as " +
                     (values.given(key) ? key : device_key) + " uses NVMe");
  }
  for (std::string& path : paths) {
    std::vector<std::string>& all = config.nvme_paths;
    if (std::find(all.begin(), all.end(), path) == all.end()) all.push_back(std::move(path));
  }
  return placement;
}

void read_homes(ConfigValues& values, Config& config, Problems& problems) {
  config.params = read_placement(values, kParamBlock, "zoffload.params", config, problems);
  const size_t param_paths = config.nvme_paths.size();
  config.optimizer =
      read_placement(values, kOptimizerBlock, "zoffload.optimizer", config, problems);
  if (param_paths > 0 && config.nvme_paths.size() > param_paths) {
    values.warn(
        "the nvme_path of offload_param and of offload_optimizer differ: together they are "
        "one tier, and both hold parameters and optimizer state");
  }
  if (!config.nvme_paths.empty()) values.resolve("zoffload.nvme_path", config.nvme_paths);
  config.sub_group_numel = values.get<uint64_t>("zero_optimization.sub_group_size");
  config.subgroup_bytes = values.get<uint64_t>("zoffload.subgroup_bytes");
  config.host_bytes = values.get<uint64_t>("zoffload.host_bytes");
  config.device_bytes = values.get<uint64_t>("zoffload.device_bytes");
  config.prefetch = values.get<uint32_t>("zoffload.prefetch");
  config.threads = values.get<uint32_t>("zoffload.threads");
}

void read_io(const ConfigValues& values, Config& config, Problems& problems) {
  config.io_engine = values.get<std::string>("zoffload.io_engine");
  const auto if_given = [&](const char* key) {
    return values.given(key) ? values.get<uint64_t>(key) : 0;
  };
  config.io_block_bytes = if_given("aio.block_size");
  if (config.io_block_bytes % kPageBytes != 0) {
    problems.mistake("aio.block_size: found " + std::to_string(config.io_block_bytes) +
                     "; allowed: a multiple of " + std::to_string(kPageBytes));
  }
  config.io_queue_depth = static_cast<uint32_t>(if_given("aio.queue_depth"));
  if (values.given("zoffload.profile")) {
    config.profile_file = values.get<std::string>("zoffload.profile");
    if (config.profile_file.empty()) {
      problems.mistake("zoffload.profile: found \"\"; allowed: the name of a file");
    }
  }
  config.verify_reads = values.get<bool>("zoffload.verify_reads");
  config.allow_memory_paths = values.get<bool>("zoffload.allow_memory_paths");
  config.stall_timeout_seconds = values.get<double>("zoffload.stall_timeout");
}

std::vector<ResolvedKey> resolved_keys(const ConfigValues& values) {
  std::vector<ResolvedKey> resolved;
  for (const KeyRow& row : config_keys()) {
    const bool given = values.named(row.name);
    if (!given && row.treatment != Treatment::kHonoured) continue;
    std::string meaning(row.meaning);
    if (row.treatment == Treatment::kLegacy) meaning += " of " + std::string(row.alias) + ".";
    resolved.push_back({std::string(row.name), values.at(row.name).dump(), row.treatment, given,
                        std::move(meaning)});
  }
  return resolved;
}

}  // namespace

Result<Config> parse_config(std::string_view json_text, uint32_t world_size) {
  ZO_CHECK(world_size > 0);
  Problems problems;
  ZO_ASSIGN_OR_RETURN(ConfigValues values, ConfigValues::read(json_text, problems));
  Config config;
  config.world_size = world_size;
  read_batch(values, config, problems);
  read_precision(values, config, problems);
  read_optimizer(values, config, problems);
  read_state_format(values, config);
  read_stage(values, config, problems);
  read_homes(values, config, problems);
  read_io(values, config, problems);
  if (problems.any()) return problems.status();
  config.warnings = values.warnings();
  config.resolved = resolved_keys(values);
  return config;
}

std::string explain(const Config& config) {
  using Row = std::array<std::string, 4>;
  std::vector<Row> table = {{"key", "value", "treatment", "meaning"}};
  for (const ResolvedKey& key : config.resolved) {
    std::string treatment = treatment_name(key.treatment);
    if (!key.given) treatment += " (default)";
    if (key.treatment == Treatment::kRefused) treatment = "refused if changed";
    table.push_back({key.key, key.value, std::move(treatment), key.meaning});
  }
  std::array<size_t, 4> widths{};
  for (const Row& row : table) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : table) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    text += row.back() + "\n";
  }
  return text;
}

}  // namespace zoffload
