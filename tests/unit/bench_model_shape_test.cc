#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/model_shape.h"

namespace zoffload::bench {
namespace {

// Goal: numbers of parameters as people write them, and nothing else. Method: a table; what is
// printed is read back.
TEST(ModelShape, ParsesNumel) {
  const std::pair<const char*, uint64_t> good[] = {{"4096", 4096},
                                                   {"64Mi", uint64_t{64} << 20},
                                                   {"350M", 350'000'000},
                                                   {"1.5B", 1'500'000'000},
                                                   {"7B", 7'000'000'000},
                                                   {"2Gi", uint64_t{2} << 30},
                                                   {"1", 1}};
  for (const auto& [text, numel] : good) {
    const auto parsed = parse_numel(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, numel) << text;
    EXPECT_EQ(*parse_numel(format_numel(numel)), numel);
  }
  for (const char* text : {"", "0", "-1", "B", "7 B", "7X", "1e3", "64MiB", "nan", "9999999T"}) {
    const auto parsed = parse_numel(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("'" + std::string(text) + "'"), std::string::npos);
  }
}

// Goal: numbers are said as they are written. Method: round ones, in both kinds of units.
TEST(ModelShape, NumbersAreShort) {
  for (const char* text : {"64Mi", "350M", "1500M", "7B", "70B", "2Gi", "1Ki", "1000", "999"}) {
    EXPECT_EQ(format_numel(*parse_numel(text)), text == std::string("1000") ? "1K" : text);
  }
}

// Goal: placements, whole and shared. Method: a table; what is printed is read back.
TEST(ModelShape, ParsesPlacements) {
  const std::pair<const char*, Placement> good[] = {
      {"nvme", {0, 0, 1}},
      {"hbm", {1, 0, 0}},
      {"nvme:0.6,host:0.4", {0, 0.4, 0.6}},
      {"hbm:0.25,host:0.25,nvme:0.5", {0.25, 0.25, 0.5}}};
  for (const auto& [text, placement] : good) {
    const auto parsed = parse_placement(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, placement) << text;
    EXPECT_EQ(*parse_placement(format_placement(placement)), placement);
  }
  for (const char* text : {"", "disk", "nvme,", "nvme,host", "nvme:0.6", "nvme:0.5,nvme:0.5",
                           "nvme:1x", "nvme:-1,host:2", "nvme:"}) {
    EXPECT_FALSE(parse_placement(text).ok()) << text;
  }
}

// Goal: a number becomes parameters of 16Mi at most that add up to it. Method: around the border.
TEST(ModelShape, CutsANumber) {
  constexpr uint64_t kPiece = uint64_t{16} << 20;
  for (const uint64_t numel : {uint64_t{1}, kPiece - 1, kPiece, kPiece + 1, 4 * kPiece}) {
    const ModelShape shape = model_of(numel);
    EXPECT_EQ(shape.numel(), numel);
    EXPECT_EQ(shape.params.size(), (numel + kPiece - 1) / kPiece);
  }
}

// Goal: both forms of the file. Method: GPT-2's figures, worked out by hand: a block has 12 w^2 +
// 13 w parameters.
TEST(ModelShape, ReadsModels) {
  const auto listed = parse_model(R"({"params": [["a", [2, 3]], ["b", []], ["c", [7]]]})");
  ASSERT_TRUE(listed.ok()) << listed.status().to_string();
  const std::vector<std::pair<std::string, uint64_t>> expected = {{"a", 6}, {"b", 1}, {"c", 7}};
  EXPECT_EQ(listed->params, expected);

  const auto gpt2 = parse_model(R"({"layers": 12, "width": 768, "vocabulary": 50257})");
  ASSERT_TRUE(gpt2.ok()) << gpt2.status().to_string();
  EXPECT_EQ(gpt2->numel(), uint64_t{12} * (12 * 768 * 768 + 13 * 768) + uint64_t{50257} * 768);
  EXPECT_EQ(gpt2->params.size(), 12u * 12 + 1);
}

// Goal: a wrong file is an error that names what is wrong, never a crash. Method: a table.
TEST(ModelShape, RefusesWrongModels) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "JSON"},
      {"[]", "JSON"},
      {"{}", "layers"},
      {R"({"layers": 0, "width": 8})", "layers is 0"},
      {R"({"layers": -3, "width": 8})", "layers is -3"},
      {R"({"layers": 2, "width": "wide"})", "width is \"wide\""},
      {R"({"layers": 2, "depth": 8})", "depth"},
      {R"({"layers": 1048576, "width": 1048576})", "too many"},
      {R"({"params": []})", "params"},
      {R"({"params": [["a"]]})", "params"},
      {R"({"params": [["a", [0]]]})", "dimension 0"},
      {R"({"params": [["a", [2, -1]]]})", "dimension -1"},
      {R"({"params": [["a", [1048576, 1048576, 1048576, 1048576]]]})", "\"a\""},
      {R"({"params": [["a", [3]]], "layers": 2})", "params"}};
  for (const auto& [text, what] : bad) {
    const auto model = parse_model(text);
    ASSERT_FALSE(model.ok()) << text;
    EXPECT_EQ(model.status().code(), Code::kInvalidArgument);
    EXPECT_NE(model.status().message().find(what), std::string::npos) << model.status().message();
  }
}

// Goal: errors name the file. Method: one that is not there, and a folder.
TEST(ModelShape, NamesTheFile) {
  for (const std::string& file : {testing::TempDir() + "no_such_model.json", testing::TempDir()}) {
    const auto model = read_model(file);
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.status().message().find(file), std::string::npos);
  }
}

}  // namespace
}  // namespace zoffload::bench
