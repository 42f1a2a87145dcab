// Goal: a config file means what its keys say together, and whatever is wrong with it is named.
// Method: tables of files and answers.
#include "core/plan/config.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/config_test_util.h"

namespace zoffload {
namespace {

TEST(Config, UnknownKeysAreNamedInFull) {
  // Goal: unknown keys at every depth, misplaced ones, and misspelt blocks are found. Method: a
  // table.
  const std::array<std::array<const char*, 2>, 8> cases = {{
      {"zero_optimisation", "zero_optimization"},
      {"zero_optimization.offload_optimiser", "zero_optimization.offload_optimizer"},
      {"zero_optimization.leaf_module.class", "zero_optimization.leaf_module.classes"},
      {"zero_optimization.queue_depth", "aio.queue_depth"},
      {"offload_param", "zero_optimization.offload_param"},
      {"bf16.loss_scale", "fp16.loss_scale"},
      {"optimizer.lr", "optimizer.params.lr"},
      {"zoffload.params.nvm", "zoffload.params.nvme"},
  }};
  for (const auto& [wrong, right] : cases) {
    expect_error(parse(with(wrong, 1)), Code::kInvalidArgument,
                 {std::string(wrong) + ": unknown key; the nearest known one is " + right});
  }
  json dotted = base();
  dotted["aio.queue_depth"] = 4;
  expect_error(parse(dotted), Code::kInvalidArgument, {"aio.queue_depth: unknown key"});
}

TEST(Config, SmallestFileHasTheDocumentedDefaults) {
  // Goal: a key that is absent means its default. Method: the smallest file, every field.
  const Result<Config> config = parse(base(), 2);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->world_size, 2u);
  EXPECT_EQ(config->stage, 3u);
  EXPECT_EQ(config->train_batch_size, 8u);
  EXPECT_EQ(config->train_micro_batch_size_per_gpu, 4u);
  EXPECT_EQ(config->gradient_accumulation_steps, 1u);
  EXPECT_EQ(config->dtype, DType::kFloat32);
  EXPECT_EQ(config->gradient_clipping, 0.0);
  EXPECT_TRUE(config->skip_nonfinite);
  EXPECT_FALSE(config->optimizer_given);
  EXPECT_EQ(config->optimizer_title, "AdamW");
  EXPECT_EQ(config->lr, 1e-3);
  EXPECT_EQ(config->beta1, 0.9);
  EXPECT_EQ(config->beta2, 0.999);
  EXPECT_EQ(config->eps, 1e-8);
  EXPECT_EQ(config->weight_decay, 0.0);
  EXPECT_EQ(config->sub_group_numel, 1'000'000'000u);
  EXPECT_EQ(config->subgroup_bytes, 0u);
  EXPECT_EQ(config->params, (Placement{1, 0, 0}));
  EXPECT_EQ(config->optimizer, (Placement{1, 0, 0}));
  EXPECT_EQ(config->state_format, StateFormat{});
  EXPECT_TRUE(config->rules.empty());
  EXPECT_TRUE(config->nvme_paths.empty());
  EXPECT_EQ(config->host_bytes, 0u);
  EXPECT_EQ(config->device_bytes, 0u);
  EXPECT_EQ(config->prefetch, 2u);
  EXPECT_EQ(config->threads, 0u);
  EXPECT_EQ(config->io_engine, "auto");
  EXPECT_EQ(config->io_block_bytes, 0u);
  EXPECT_EQ(config->io_queue_depth, 0u);
  EXPECT_EQ(config->profile_file, "");
  EXPECT_TRUE(config->verify_reads);
  EXPECT_EQ(config->stall_timeout_seconds, 60.0);
  EXPECT_TRUE(config->warnings.empty());
}

TEST(Config, EveryHonouredKeyReachesItsField) {
  // Goal: no honoured key is lost or swapped with another. Method: a file in which each differs
  // from its default.
  const Result<Config> config = parse_config(R"({
      // A comment, as DeepSpeed's own reader allows.
      "train_batch_size": 24, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4,
      "gradient_clipping": 1.5, "bf16": {"enabled": true},
      "optimizer": {"type": "adam", "params": {"lr": 0.5, "betas": [0.25, 0.75], "eps": 1e-6,
                    "weight_decay": 0.125, "adam_w_mode": false}},
      "zero_optimization": {"stage": 3, "sub_group_size": 5e8,
                            "offload_param": {"device": "NVMe", "nvme_path": "/a"},
                            "offload_optimizer": {"device": "nvme", "nvme_path": "/b"}},
      "aio": {"block_size": 8192, "queue_depth": 16},
      "zoffload": {"host_bytes": "2GB", "device_bytes": "256MiB", "prefetch": 5, "threads": 6,
                   "verify_reads": false, "io_engine": "uring", "stall_timeout": 7.5,
                   "profile": "profile.json", "state_format": "split+int8",
                   "rules": [{"params": "norm", "state_format": "fp32"}],
                   "optimizer": {"cpu": 0.25, "nvme": 0.75},
                   "skip_nonfinite": false, "subgroup_bytes": "4MiB"}})",
                                             2);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->train_batch_size, 24u);
  EXPECT_EQ(config->train_micro_batch_size_per_gpu, 3u);
  EXPECT_EQ(config->gradient_accumulation_steps, 4u);
  EXPECT_EQ(config->dtype, DType::kBFloat16);
  EXPECT_EQ(config->gradient_clipping, 1.5);
  EXPECT_FALSE(config->skip_nonfinite);
  EXPECT_TRUE(config->optimizer_given);
  EXPECT_EQ(config->optimizer_title, "Adam");
  EXPECT_EQ(config->lr, 0.5);
  EXPECT_EQ(config->beta1, 0.25);
  EXPECT_EQ(config->beta2, 0.75);
  EXPECT_EQ(config->eps, 1e-6);
  EXPECT_EQ(config->weight_decay, 0.125);
  EXPECT_EQ(config->sub_group_numel, 500'000'000u);
  EXPECT_EQ(config->subgroup_bytes, 4u << 20);
  EXPECT_EQ(config->params, (Placement{0, 0, 1}));
  EXPECT_EQ(config->optimizer, (Placement{0, 0.25, 0.75}));
  EXPECT_EQ(config->nvme_paths, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(config->host_bytes, 2'000'000'000u);
  EXPECT_EQ(config->device_bytes, 256u << 20);
  EXPECT_EQ(config->prefetch, 5u);
  EXPECT_EQ(config->threads, 6u);
  EXPECT_EQ(config->io_engine, "uring");
  EXPECT_EQ(config->io_block_bytes, 8192u);
  EXPECT_EQ(config->io_queue_depth, 16u);
  EXPECT_EQ(config->profile_file, "profile.json");
  EXPECT_EQ(config->state_format, state_format_named("split+int8").value());
  EXPECT_EQ(config->rules, (std::vector<FormatRule>{{"norm", StateFormat{}}}));
  EXPECT_FALSE(config->verify_reads);
  EXPECT_EQ(config->stall_timeout_seconds, 7.5);
  ASSERT_EQ(config->warnings.size(), 2u);
  EXPECT_TRUE(contains(config->warnings[0], "offload_optimizer.device gives way"));
  EXPECT_TRUE(contains(config->warnings[1], "offload_optimizer differ"));
}

TEST(Config, OutOfRangeNamesKeyValueAndWhatIsAllowed) {
  // Goal: limits hold at their edges. Method: a table of keys with values just outside, and just
  // inside.
  struct Case {
    const char* key;
    json outside;
    json inside;
    const char* allowed;
  };
  const std::vector<Case> cases = {
      {"zero_optimization.stage", 4, 3, "a whole number >= 0 and <= 3"},
      {"gradient_clipping", -0.5, 0, "a number >= 0"},
      {"optimizer.params.betas", {0.9, 1.0}, {0.0, 0.999}, "a list of two numbers >= 0 and < 1"},
      {"optimizer.params.betas", {0.9}, {0.9, 0.9}, "a list of two numbers"},
      {"aio.block_size", 2048, 4096, "a whole number >= 4096 and <= 1073741824"},
      {"aio.block_size", 5000, 8192, "a multiple of 4096"},
      {"aio.queue_depth", 0, 1, "a whole number >= 1 and <= 4096"},
      {"zoffload.host_bytes", -1, 0, "bytes, as a whole number"},
      {"zoffload.host_bytes", "3 potatoes", "3 kib", "\"256MiB\""},
      {"zoffload.io_engine", "aio", "threads", "one of auto, uring, libaio, threads"},
      {"zoffload.stall_timeout", 0, 0.001, "a number >= 0.001"},
      {"zero_optimization.sub_group_size", 0.5, 1.0, "a whole number >= 1"},
      {"zero_optimization.sub_group_size", 1.5, 2.0, "a whole number >= 1"},
      {"steps_per_print", 1e300, 1e9, "a whole number"},
      {"steps_per_print", 18446744073709551615u, 9223372036854775807, "a whole number"},
      {"zero_optimization.reduce_bucket_size", -1, 5e8, "a whole number >= 0"},
      {"zero_optimization.offload_param.device", "disk", "cpu", "one of none, cpu, nvme"},
  };
  for (const Case& c : cases) {
    expect_error(parse(with(c.key, c.outside)), Code::kInvalidArgument,
                 {std::string(c.key) + ": found " + c.outside.dump(), c.allowed});
    const Result<Config> config = parse(with(c.key, c.inside));
    EXPECT_TRUE(config.ok()) << config.status().message();
  }
}

TEST(Config, AutoIsFilledInOrRefusedAllAtOnce) {
  // Goal: "auto" never reaches the engine. Method: autos that need a launcher are one error; the
  // others are no error.
  json file = base();
  for (const char* key : {"fp16.enabled", "bf16.enabled", "optimizer.params.lr",
                          "gradient_clipping", "zero_optimization.offload_param.nvme_path"}) {
    *at_path(file, key) = "auto";
  }
  expect_error(parse(file), Code::kInvalidArgument,
               {"\"auto\" is left for bf16.enabled, fp16.enabled, gradient_clipping, "
                "optimizer.params.lr, zero_optimization.offload_param.nvme_path"});

  json filled = base();
  for (const char* key : {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                          "zero_optimization.reduce_bucket_size",
                          "zero_optimization.stage3_prefetch_bucket_size", "zoffload.io_engine"}) {
    *at_path(filled, key) = "auto";
  }
  const Result<Config> config = parse(filled);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->train_micro_batch_size_per_gpu, 8u);
  EXPECT_EQ(config->warnings.size(), 2u);
}

TEST(Config, BatchSizesAreFilledAndMultiplyOut) {
  // Goal: DeepSpeed's batch arithmetic. Method: a table; 0 means not given, and an expected train
  // of 0 an error.
  struct Case {
    uint64_t train, micro, steps;
    uint32_t world;
    std::array<uint64_t, 3> expected;
  };
  const std::vector<Case> cases = {
      {24, 3, 4, 2, {24, 3, 4}}, {24, 3, 0, 2, {24, 3, 4}},  {24, 0, 4, 2, {24, 3, 4}},
      {0, 3, 4, 2, {24, 3, 4}},  {24, 0, 0, 2, {24, 12, 1}}, {0, 3, 0, 2, {6, 3, 1}},
      {24, 3, 5, 2, {}},         {25, 3, 0, 2, {}},          {25, 0, 4, 2, {}},
      {25, 0, 0, 2, {}},         {1, 0, 0, 2, {}},           {0, 0, 4, 2, {}},
      {0, 0, 0, 1, {}},          {1, 3, 0, 1, {}},           {0, 1u << 29, 1u << 29, 1u << 31, {}},
  };
  for (const Case& c : cases) {
    json file = {{"zero_optimization", {{"stage", 3}}}};
    if (c.train != 0) file["train_batch_size"] = c.train;
    if (c.micro != 0) file["train_micro_batch_size_per_gpu"] = c.micro;
    if (c.steps != 0) file["gradient_accumulation_steps"] = c.steps;
    const Result<Config> config = parse(file, c.world);
    if (c.expected[0] == 0) {
      expect_error(config, Code::kInvalidArgument,
                   {"train_batch_size: found ", "train_micro_batch_size_per_gpu"});
      continue;
    }
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->train_batch_size, c.expected[0]);
    EXPECT_EQ(config->train_micro_batch_size_per_gpu, c.expected[1]);
    EXPECT_EQ(config->gradient_accumulation_steps, c.expected[2]);
  }
  expect_error(parse(with("gradient_accumulation_steps", 3)), Code::kInvalidArgument,
               {"found 8; allowed: train_micro_batch_size_per_gpu 2 (filled in) * "
                "gradient_accumulation_steps 3 * world size 1"});
}

TEST(Config, PlacementComesFromTheDeviceUnlessZoffloadSaysMore) {
  // Goal: both ways to place shards, and what is no placement. Method: tables, for parameters and
  // optimizer alike.
  struct Case {
    json value;
    Placement expected;
  };
  const std::vector<Case> good = {
      {"hbm", {1, 0, 0}},
      {"host", {0, 1, 0}},
      {"cpu", {0, 1, 0}},
      {"nvme", {0, 0, 1}},
      {{{"cpu", 0.6}, {"nvme", 0.4}}, {0, 0.6, 0.4}},
      {{{"hbm", 0.25}, {"host", 0.25}, {"nvme", 0.5}}, {0.25, 0.25, 0.5}},
  };
  const std::vector<json> bad = {"disk",
                                 1,
                                 json::object(),
                                 {{"cpu", 0.6}},
                                 {{"cpu", 1.5}, {"nvme", -0.5}},
                                 {{"cpu", "all"}},
                                 json::array({"cpu"})};
  for (const std::string key : {"zoffload.params", "zoffload.optimizer"}) {
    for (const Case& c : good) {
      const Result<Config> config = parse(with(key, c.value, with("zoffload.nvme_path", "/a")));
      ASSERT_TRUE(config.ok()) << config.status().message();
      EXPECT_EQ(key == "zoffload.params" ? config->params : config->optimizer, c.expected);
      EXPECT_EQ(config->nvme_paths.size(), c.expected.nvme > 0 ? 1u : 0u);
    }
    for (const json& value : bad) {
      expect_error(parse(with(key, value)), Code::kInvalidArgument, {key + ": found ", "add to 1"});
    }
  }
  const Result<Config> old = parse(with("zero_optimization.cpu_offload", true));
  ASSERT_TRUE(old.ok()) << old.status().message();
  EXPECT_EQ(old->optimizer, (Placement{0, 1, 0}));
  EXPECT_EQ(old->params, (Placement{1, 0, 0}));
  const Result<Config> off = parse(with("zero_optimization.cpu_offload", false));
  ASSERT_TRUE(off.ok()) << off.status().message();
  EXPECT_EQ(off->optimizer, (Placement{1, 0, 0}));

  json both = with("zero_optimization.offload_param.device", "cpu", with("zoffload.params", "hbm"));
  const Result<Config> wins = parse(both);
  ASSERT_TRUE(wins.ok()) << wins.status().message();
  EXPECT_EQ(wins->params, (Placement{1, 0, 0}));
  ASSERT_EQ(wins->warnings.size(), 1u);
  EXPECT_EQ(wins->warnings[0],
            "zero_optimization.offload_param.device gives way to zoffload.params");

  both = with("zero_optimization.cpu_offload", true,
              with("zero_optimization.offload_optimizer.device", "cpu"));
  expect_error(parse(both), Code::kInvalidArgument,
               {"zero_optimization.offload_optimizer.device is given twice"});
}

TEST(Config, NvmeNeedsAPath) {
  // Goal: a missing folder is found here, not at the first write. Method: each way to place shards
  // on NVMe, with no path, an empty one, and one.
  for (const std::string role : {"param", "optimizer"}) {
    const std::string block = "zero_optimization.offload_" + role;
    const std::string key = role == "param" ? "zoffload.params" : "zoffload.optimizer";
    for (const json& file : {with(block + ".device", "nvme"), with(key, "nvme")}) {
      for (const json& path : {json(), json("")}) {
        expect_error(parse(with(block + ".nvme_path", path, file)), Code::kInvalidArgument,
                     {block + ".nvme_path: found " + path.dump() + "; allowed: a folder"});
      }
      for (const std::string& path_key :
           {block + ".nvme_path", std::string("zoffload.nvme_path")}) {
        const Result<Config> config = parse(with(path_key, "/a", file));
        ASSERT_TRUE(config.ok()) << config.status().message();
        EXPECT_EQ(config->nvme_paths, std::vector<std::string>{"/a"});
      }
    }
  }
}

TEST(Config, OnlyStage3) {
  // Goal: the other stages, and no stage, are refused by name; offload_param below stage 3 is a
  // mistake. Method: each.
  for (int stage : {0, 1, 2}) {
    const json file = with("zero_optimization.stage", stage);
    const std::string found = "zero_optimization.stage: found " + std::to_string(stage);
    expect_error(parse(file), Code::kUnsupported, {found, "stage 3 is what this version has"});
    expect_error(parse(with("zero_optimization.offload_param.device", "cpu", file)),
                 Code::kInvalidArgument,
                 {found, "zero_optimization.offload_param.device: found \"cpu\" with stage"});
  }
  expect_error(parse({{"train_batch_size", 8}}), Code::kUnsupported, {"found 0 by default"});
  expect_error(parse(with("zero_optimization", true)), Code::kInvalidArgument,
               {"zero_optimization: found true; allowed: an object"});
}

TEST(Config, AdamMayMeanAdamW) {
  // Goal: DeepSpeed's reading of "Adam", and the unknown refused. Method: type by mode.
  struct Case {
    const char* type;
    bool adam_w_mode;
    const char* expected;
    size_t warnings;
  };
  for (const Case& c : {Case{"Adam", true, "AdamW", 0}, Case{"Adam", false, "Adam", 0},
                        Case{"AdamW", true, "AdamW", 0}, Case{"AdamW", false, "AdamW", 1}}) {
    const Result<Config> config =
        parse(with("optimizer", {{"type", c.type}, {"params", {{"adam_w_mode", c.adam_w_mode}}}}));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->optimizer_title, c.expected);
    EXPECT_EQ(config->warnings.size(), c.warnings);
  }
  for (const std::string type : {"Lamb", "Muon"}) {
    expect_error(
        parse(with("optimizer.type", type)), Code::kUnsupported,
        {"optimizer.type: found \"" + type + "\"", "allowed: Adam, AdamW, SGD, Lion, Adagrad"});
  }
}

Result<Config> parse_optimizer(const char* type, const json& params) {
  return parse(with("optimizer", {{"type", type}, {"params", params}}));
}

TEST(Config, EveryOptimizerHasItsOwnSettings) {
  // Goal: a setting reaches its field, has DeepSpeed's default for that optimizer, and is a mistake
  // with an optimizer that lacks it. Method: each optimizer with all of its settings, with none,
  // and with a foreign one.
  const Result<Config> sgd = parse_optimizer(
      "sgd", {{"lr", 0.5}, {"momentum", 0.75}, {"weight_decay", 0.125}, {"nesterov", true}});
  ASSERT_TRUE(sgd.ok()) << sgd.status().message();
  EXPECT_EQ(sgd->optimizer_title, "SGD");
  EXPECT_EQ(sgd->lr, 0.5);
  EXPECT_EQ(sgd->momentum, 0.75);
  EXPECT_EQ(sgd->weight_decay, 0.125);
  EXPECT_TRUE(sgd->nesterov);
  const Result<Config> dampened = parse_optimizer("SGD", {{"momentum", 0.5}, {"dampening", 0.25}});
  ASSERT_TRUE(dampened.ok()) << dampened.status().message();
  EXPECT_EQ(dampened->lr, 1e-3);
  EXPECT_EQ(dampened->dampening, 0.25);

  const Result<Config> lion = parse_optimizer("Lion", {{"betas", {0.5, 0.75}}});
  ASSERT_TRUE(lion.ok()) << lion.status().message();
  EXPECT_EQ(lion->optimizer_title, "Lion");
  EXPECT_EQ(lion->lr, 1e-3);
  EXPECT_EQ(lion->beta2, 0.75);

  const Result<Config> adagrad =
      parse_optimizer("Adagrad", {{"lr_decay", 0.5}, {"initial_accumulator_value", 0.25}});
  ASSERT_TRUE(adagrad.ok()) << adagrad.status().message();
  EXPECT_EQ(adagrad->optimizer_title, "Adagrad");
  EXPECT_EQ(adagrad->lr, 1e-2);
  EXPECT_EQ(adagrad->eps, 1e-10);
  EXPECT_EQ(adagrad->lr_decay, 0.5);
  EXPECT_EQ(adagrad->initial_accumulator_value, 0.25);

  expect_error(parse_optimizer("SGD", {{"betas", {0.9, 0.9}}}), Code::kInvalidArgument,
               {"optimizer.params.betas: found [0.9,0.9]; SGD has no such setting"});
  expect_error(parse_optimizer("AdamW", {{"momentum", 0.9}}), Code::kInvalidArgument,
               {"optimizer.params.momentum: found 0.9; AdamW has no such setting"});
  expect_error(parse_optimizer("Lion", {{"eps", 1e-6}}), Code::kInvalidArgument,
               {"Lion has no such setting"});
  for (const json& params : {json{{"nesterov", true}},
                             json{{"nesterov", true}, {"momentum", 0.9}, {"dampening", 0.1}}}) {
    expect_error(parse_optimizer("SGD", params), Code::kInvalidArgument,
                 {"optimizer.params.nesterov: found true; allowed: only with momentum above 0"});
  }
}

TEST(Config, Fp16AndBf16Together) {
  // Goal: contradicting precisions are a mistake, not only a refusal. Method: both on.
  expect_error(parse(with("fp16.enabled", true, with("bf16.enabled", true))),
               Code::kInvalidArgument, {"bf16.enabled and fp16.enabled: found true and true"});
}

TEST(Config, TextThatIsNoConfig) {
  // Goal: broken files are errors with a place. Method: a table of texts.
  const std::array<std::array<const char*, 2>, 8> cases = {{
      {"", "not JSON"},
      {"{\"a\": 1,", "not JSON"},
      {"{\"train_batch_size\": 1e999}", "not JSON"},
      {"[1]", "found [1]; allowed: an object"},
      {R"({"aio": {"queue_depth": 1, "queue_depth": 1}})", "given twice: aio.queue_depth"},
      {R"({"aio": {}, "aio": {}})", "given twice: aio"},
      {"{\"a\": \"\xff\"}", "not JSON"},
      {R"({"a": {"x": 1}, "b": {"x": 1}, "b": 2})", "given twice: b"},
  }};
  for (const auto& [text, message] : cases) {
    expect_error(parse_config(text, 1), Code::kInvalidArgument, {message});
  }
  const std::string deep(100'000, '[');
  expect_error(parse_config("{\"aio\": " + deep + std::string(deep.size(), ']') + "}", 1),
               Code::kInvalidArgument, {"nested too deeply"});
}

TEST(Config, AllThatIsWrongIsInOneError) {
  // Goal: the user mends a file in one go. Method: mistakes and refusals of several kinds in one
  // file.
  json file = with("typo", 1, with("aio.queue_depth", -1, with("scheduler.type", "WarmupLR")));
  expect_error(parse(file), Code::kInvalidArgument,
               {"typo: ", "aio.queue_depth: ", "scheduler.type: "});
}

TEST(Config, ExplainShowsEveryGivenAndEveryHonouredKey) {
  // Goal: one look says what a file amounts to. Method: a file with each treatment; its lines, and
  // their columns.
  json file = with("aio.thread_count", 2, with("steps_per_print", 10, with("fp16.enabled", false)));
  file = with("zero_optimization.cpu_offload", true, file);
  const Result<Config> config = parse(file, 2);
  ASSERT_TRUE(config.ok()) << config.status().message();
  std::istringstream lines(explain(*config));
  std::vector<std::string> keys;
  std::string line;
  std::getline(lines, line);
  const size_t meaning_column = line.find("meaning");
  const auto expect_line = [&](std::string_view key, std::string_view value,
                               std::string_view treatment) {
    if (!line.starts_with(std::string(key) + " ")) return;
    EXPECT_TRUE(contains(line, " " + std::string(value) + " ")) << line;
    EXPECT_TRUE(contains(line, " " + std::string(treatment) + " ")) << line;
  };
  while (std::getline(lines, line)) {
    keys.push_back(line.substr(0, line.find(' ')));
    EXPECT_EQ(line.substr(meaning_column - 2, 2), "  ");
    EXPECT_NE(line[meaning_column], ' ');
    expect_line("train_batch_size", "8", "honoured");
    expect_line("train_micro_batch_size_per_gpu", "4", "honoured (default)");
    expect_line("steps_per_print", "10", "no effect here");
    expect_line("fp16.enabled", "false", "refused if changed");
    expect_line("aio.thread_count", "2", "legacy");
    expect_line("zero_optimization.offload_optimizer.device", "\"cpu\"", "honoured (default)");
  }
  std::vector<std::string> expected;
  const std::set<std::string_view> given = {"aio.thread_count", "steps_per_print", "fp16.enabled",
                                            "zero_optimization.cpu_offload"};
  for (const KeyRow& row : config_keys()) {
    const bool shown = row.treatment == Treatment::kHonoured || given.contains(row.name);
    if (shown) expected.emplace_back(row.name);
  }
  EXPECT_EQ(keys, expected);
}

TEST(Config, ExampleFilesLoadWithoutWarnings) {
  // Goal: the files we tell users to start from work. Method: each, with what its name promises.
  const std::filesystem::path folder = std::filesystem::path(ZOFFLOAD_SOURCE_DIR) / "configs";
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const Result<Config> config = parse_config(text.str(), 2);
    ASSERT_TRUE(config.ok()) << name << ": " << config.status().message();
    EXPECT_TRUE(config->warnings.empty()) << name << ": " << config->warnings[0];
    EXPECT_EQ(config->dtype == DType::kBFloat16, contains(name, "bf16")) << name;
    EXPECT_EQ(config->optimizer.nvme > 0, contains(name, "nvme")) << name;
    EXPECT_TRUE(config->optimizer_given) << name;
    ++count;
  }
  EXPECT_GE(count, 3u);
}

}  // namespace
}  // namespace zoffload
