// Goal: what a config file says of state formats, in our words or in DeepSpeed's, means one format
// for each parameter. Method: tables of files and answers.
#include <gtest/gtest.h>

#include "tests/unit/config_test_util.h"

namespace zoffload {
namespace {

constexpr const char* kMaster = "bf16.bf16_master_weights_and_grads";
constexpr const char* kMoments = "bf16.bf16_optimizer_states";
constexpr const char* kMomentsToo = "optimizer.params.fp32_optimizer_states";

std::string format_of(const json& file) {
  const Result<Config> config = parse(file);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return std::string(state_format_name(config->state_format));
}

TEST(ConfigFormats, EveryNameIsAChoice) {
  // Goal: the table of keys lists the formats that exist. Method: both lists, and each as a value.
  EXPECT_EQ(choices_of(find_key("zoffload.state_format")->allowed), state_format_names());
  const json bf16 = with("bf16.enabled", true);
  for (std::string_view name : state_format_names()) {
    EXPECT_EQ(format_of(with("zoffload.state_format", name, bf16)), name);
  }
  expect_error(parse(with("zoffload.state_format", "fp8")), Code::kInvalidArgument,
               {"zoffload.state_format: found \"fp8\"", "split+int8"});
}

TEST(ConfigFormats, DeepSpeedsKeys) {
  // Goal: bf16 models may ask for narrow state in DeepSpeed's words; fp32 models have none to
  // narrow. Method: each key alone, and two together.
  const json bf16 = with("bf16.enabled", true);
  EXPECT_EQ(format_of(bf16), "fp32");
  EXPECT_EQ(format_of(with(kMaster, true, bf16)), "split");
  EXPECT_EQ(format_of(with(kMoments, true, bf16)), "bf16");
  EXPECT_EQ(format_of(with(kMoments, true, with(kMaster, true, bf16))), "split+bf16");
  EXPECT_EQ(format_of(with(kMomentsToo, false, bf16)), "bf16");
  EXPECT_EQ(format_of(with(kMomentsToo, true, bf16)), "fp32");
  for (const char* key : {kMaster, kMoments}) EXPECT_EQ(format_of(with(key, true)), "fp32");
  EXPECT_EQ(format_of(with(kMomentsToo, false)), "fp32");
}

TEST(ConfigFormats, OurKeyWins) {
  // Goal: of two keys for one thing, ours counts, and a warning says so. Method: both.
  const json file =
      with("zoffload.state_format", "int8", with(kMaster, true, with("bf16.enabled", true)));
  const Result<Config> config = parse(file);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(state_format_name(config->state_format), "int8");
  ASSERT_EQ(config->warnings.size(), 1u);
  EXPECT_EQ(config->warnings[0], std::string(kMaster) + " gives way to zoffload.state_format");
}

TEST(ConfigFormats, SplitOfFp32HasNoEffect) {
  // Goal: nothing is ignored in silence. Method: split for all, or by a rule, in an fp32 model.
  const json rules = {{{"params", "w"}, {"state_format", "split"}}};
  for (const json& file :
       {with("zoffload.state_format", "split+bf16"), with("zoffload.rules", rules)}) {
    const Result<Config> config = parse(file);
    ASSERT_TRUE(config.ok());
    ASSERT_EQ(config->warnings.size(), 1u);
    EXPECT_TRUE(contains(config->warnings[0], "fp32 parameters are their own master"));
  }
}

TEST(ConfigFormats, RulesKeepTheirOrder) {
  const json rules = {{{"params", "norm"}, {"state_format", "fp32"}},
                      {{"params", "^h\\."}, {"state_format", "bf16"}}};
  const Result<Config> config = parse(with("zoffload.rules", rules));
  ASSERT_TRUE(config.ok());
  ASSERT_EQ(config->rules.size(), 2u);
  EXPECT_EQ(config->rules[0].params, "norm");
  EXPECT_EQ(config->rules[1].params, "^h\\.");
  EXPECT_EQ(state_format_name(config->rules[1].format), "bf16");
}

TEST(ConfigFormats, BadRules) {
  // Goal: what is wrong in a rule is named with its number. Method: a table.
  const json good = {{"params", "w"}, {"state_format", "bf16"}};
  const std::vector<std::pair<json, std::string>> cases = {
      {{good, {{"params", "w"}, {"state_fromat", "bf16"}}},
       "zoffload.rules[1].state_fromat: unknown key; the nearest known one is "
       "zoffload.rules[1].state_format"},
      {{{{"params", "w"}, {"state_format", "bf17"}}},
       "zoffload.rules[0].state_format: state format 'bf17' is unknown; known are fp32, split"},
      {{{{"params", 3}, {"state_format", "bf16"}}}, "allowed: a list of {\"params\": "},
      {{{{"state_format", "bf16"}}}, "allowed: a list of {\"params\": "},
      {{{{"params", "w"}}}, "allowed: a list of {\"params\": "},
      {{"w"}, "allowed: a list of {\"params\": "},
  };
  for (const auto& [rules, message] : cases) {
    expect_error(parse(with("zoffload.rules", rules)), Code::kInvalidArgument, {message});
  }
  const json placed = {{{"params", "w"}, {"placement", "nvme"}}};
  expect_error(parse(with("zoffload.rules", placed)), Code::kUnsupported,
               {"zoffload.rules[0].placement: found \"nvme\", which this version does not have"});
}

}  // namespace
}  // namespace zoffload
