// Goal: what the table of keys promises holds for each of its rows. Method: loops over the table,
// one small file per row.
#include "core/plan/config_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/config_test_util.h"

namespace zoffload {
namespace {

// A value of the row's type that is not its default.
json another_value(const KeyRow& row) {
  const json fallback = json::parse(row.fallback);
  switch (row.type) {
    case KeyType::kBool: return fallback != true;
    case KeyType::kInt: return fallback == 7 ? 8 : 7;
    case KeyType::kNumber: return fallback == 0.25 ? 0.5 : 0.25;
    case KeyType::kPair: return {0.5, 0.25};
    case KeyType::kBytes: return 8192;
    case KeyType::kString: {
      const std::vector<std::string_view> choices = choices_of(row.allowed);
      return choices.empty() ? "other" : std::string(choices.back());
    }
    case KeyType::kStrings: return {"other"};
    case KeyType::kPlacement: return "cpu";
    case KeyType::kRules: return {{{"params", "bias$"}, {"state_format", "bf16"}}};
    case KeyType::kBlock: return json::object();
  }
  return {};
}

bool below_refused_block(const KeyRow& row) {
  const auto is_above = [&](const KeyRow& block) {
    return block.type == KeyType::kBlock && row.name.starts_with(std::string(block.name) + ".");
  };
  return std::any_of(config_keys().begin(), config_keys().end(), is_above);
}

TEST(ConfigKeys, TableIsConsistent) {
  // Goal: the rows do not contradict each other. Method: each name once, each alias a row that is
  // itself no alias, a meaning for each.
  std::set<std::string_view> names;
  for (const KeyRow& row : config_keys()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    EXPECT_EQ(row.treatment == Treatment::kLegacy, !row.alias.empty()) << row.name;
    if (row.alias.empty()) continue;
    const KeyRow* const target = find_key(row.alias);
    ASSERT_NE(target, nullptr) << row.name;
    EXPECT_NE(target->treatment, Treatment::kLegacy) << row.name;
    const bool is_device = row.type == KeyType::kBool && target->type == KeyType::kString;
    EXPECT_TRUE(row.type == target->type || is_device) << row.name;
  }
}

TEST(ConfigKeys, EveryDefaultMayBeWrittenOut) {
  // Goal: a file that spells out a default means the same as one that does not. Method: each row's
  // default, given.
  for (const KeyRow& row : config_keys()) {
    if (row.name == "zero_optimization.stage" || row.name == "train_batch_size") continue;
    if (below_refused_block(row)) continue;  // the block itself is refused
    const Result<Config> config = parse(with(row.name, json::parse(row.fallback)));
    EXPECT_TRUE(config.ok()) << row.name << ": " << config.status().message();
  }
}

TEST(ConfigKeys, EveryNoEffectKeyWarnsOnceByName) {
  // Goal: nothing is ignored in silence. Method: each such row with another value, null excepted.
  for (const KeyRow& row : config_keys()) {
    if (row.treatment != Treatment::kNoEffect) continue;
    const Result<Config> config = parse(with(row.name, another_value(row)));
    ASSERT_TRUE(config.ok()) << config.status().message();
    ASSERT_EQ(config->warnings.size(), 1u) << row.name;
    EXPECT_TRUE(config->warnings[0].starts_with(std::string(row.name) + " has no effect here"));
  }
}

TEST(ConfigKeys, EveryLegacyKeyWarnsOnceAndNamesItsSuccessor) {
  // Goal: old files work and say how to bring them up to date. Method: each legacy row.
  for (const KeyRow& row : config_keys()) {
    if (row.treatment != Treatment::kLegacy) continue;
    const Result<Config> config =
        parse(with(row.name, row.type == KeyType::kBool ? json(true) : json(4)));
    ASSERT_TRUE(config.ok()) << config.status().message();
    ASSERT_EQ(config->warnings.size(), 1u) << row.name;
    EXPECT_TRUE(config->warnings[0].starts_with(std::string(row.name) + " is an old name of " +
                                                std::string(row.alias)));
  }
}

TEST(ConfigKeys, EveryRefusedKeyIsRefusedByName) {
  // Goal: a feature that is missing is never silently left out. Method: each refused row with
  // another value.
  for (const KeyRow& row : config_keys()) {
    if (row.treatment != Treatment::kRefused) continue;
    const Result<Config> config = parse(with(row.name, another_value(row)));
    expect_error(config, Code::kUnsupported,
                 {std::string(row.name) + ": found ", std::string(row.meaning)});
  }
}

TEST(ConfigKeys, EveryKeyRefusesAnotherType) {
  // Goal: types are checked, for keys without effect too. Method: each row with a value of no type
  // it takes.
  for (const KeyRow& row : config_keys()) {
    const json wrong = row.type == KeyType::kBool ? json(1) : json(true);
    expect_error(parse(with(row.name, wrong)), Code::kInvalidArgument,
                 {std::string(row.name) + ": found " + wrong.dump() +
                  "; allowed: " + describe_allowed(row)});
  }
}

TEST(ConfigKeys, EveryMisspeltHonouredKeyIsAnErrorThatNamesTheRightOne) {
  // Goal: a typo never has no effect. Method: each honoured key with each letter of its last part
  // dropped.
  for (const KeyRow& row : config_keys()) {
    if (row.treatment != Treatment::kHonoured) continue;
    const size_t first = row.name.rfind('.') == row.name.npos ? 0 : row.name.rfind('.') + 1;
    for (size_t i = first; i < row.name.size(); ++i) {
      std::string misspelt(row.name);
      misspelt.erase(i, 1);
      expect_error(parse(with(misspelt, another_value(row))), Code::kInvalidArgument,
                   {misspelt + ": unknown key; the nearest known one is " + std::string(row.name)});
    }
  }
}

}  // namespace
}  // namespace zoffload
