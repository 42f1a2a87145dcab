#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "bench/read_document.h"

namespace zoffload::bench {
namespace {

std::string error_of(const std::string& text) {
  const auto document = parse_document(text, "x.json");
  if (document.ok()) return "no error";
  EXPECT_EQ(document.status().code(), Code::kInvalidArgument);
  return document.status().message();
}

// A document with one result, of which `change` makes another.
std::string with_result(const Json& change) {
  Json result = {{"name", "read"},
                 {"params", Json::object()},
                 {"bandwidth_bytes_per_s", {{"samples", {1.0, 2.0}}}}};
  result.merge_patch(change);
  return Json({{"schema", "zoffload-bench/1"}, {"results", {result}}}).dump();
}

// Goal: what the program writes can be read back, with its samples. Method: print a document with
// all optional fields, read it.
TEST(BenchReadDocument, TakesWhatWasWritten) {
  Document document;
  Result result;
  result.name = "read";
  result.params = {{"queue_depth", 8}};
  result.bandwidth.values = {3, 1, 2};
  result.latency_ns.emplace().add(1000);
  result.series = {{0.1, 5.0}, {0.2, 6.0}};
  result.details = {{"x", 1}};
  document.results = {result, result};
  const auto read = parse_document(document.to_json().dump(), "x.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ((*read)["results"].size(), 2u);
  EXPECT_EQ(samples_of((*read)["results"][0]).values, (std::vector<double>{3, 1, 2}));
  EXPECT_EQ(*read, document.to_json());
}

// Goal: text that is not JSON is refused with the place. Method: a missing value in line 2, a text
// that ends too early, an empty one, a number that no double holds.
TEST(BenchReadDocument, SaysWhereJsonEnds) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\": }"), "x.json: not JSON: at line 2, column 7");
  EXPECT_EQ(error_of("{\"a\": [1, 2"), "x.json: not JSON: it ends too early, at line 1, column 12");
  EXPECT_EQ(error_of(""), "x.json: not JSON: it ends too early, at line 1, column 1");
  EXPECT_NE(error_of("{\"a\": 1e999}").find("not JSON that can be read"), std::string::npos);
}

// Goal: other JSON is refused by what it is. Method: no object, no schema, another version, no
// results.
TEST(BenchReadDocument, NamesWhatIsWrong) {
  EXPECT_EQ(error_of("[1]"), "x.json: not a document of zoffload-bench: no JSON object");
  EXPECT_EQ(error_of("{}"), "x.json: not a document of zoffload-bench: it has no schema");
  EXPECT_EQ(error_of(R"({"schema": "zoffload-bench/2", "results": []})"),
            "x.json: its schema is \"zoffload-bench/2\"; this program reads \"zoffload-bench/1\"");
  EXPECT_EQ(error_of(R"({"schema": "zoffload-bench/1"})"), "x.json: results is missing or no list");
}

// Goal: later code meets no field of a wrong type. Method: every field that it reads, of a wrong
// type; the same document without the change is taken.
TEST(BenchReadDocument, ChecksEveryResult) {
  EXPECT_EQ(error_of(with_result(Json::object())), "no error");
  EXPECT_EQ(error_of(with_result({{"name", 3}})), "x.json: results[0]: name is missing or no text");
  for (const char* change :
       {R"({"name": null})", R"({"params": []})", R"({"params": null})",
        R"({"bandwidth_bytes_per_s": 3})", R"({"bandwidth_bytes_per_s": {"samples": 3}})",
        R"({"bandwidth_bytes_per_s": {"samples": ["3"]}})",
        R"({"bandwidth_bytes_per_s": {"samples": [-1]}})", R"({"latency_ns": 3})",
        R"({"details": []})", R"({"series": 3})", R"({"series": [[1, 2, 3]]})",
        R"({"series": [["1", 2]]})"}) {
    const std::string error = error_of(with_result(Json::parse(change)));
    EXPECT_TRUE(error.starts_with("x.json: results[0]: ")) << change << ": " << error;
  }
}

// Goal: a file made to exhaust the stack is refused. Method: a thousand lists in each other.
TEST(BenchReadDocument, RefusesDeepNesting) {
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  EXPECT_EQ(error_of("{\"schema\": \"zoffload-bench/1\", \"results\": [], \"x\": " + deep + "}"),
            "x.json: nested more than 64 deep");
}

// Goal: a file that cannot be read is named, with the reason. Method: a missing one, a folder, a
// good one.
TEST(BenchReadDocument, NamesTheFile) {
  std::string root = testing::TempDir() + "read_document_XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  EXPECT_EQ(read_document(root + "/none.json").status().message(),
            root + "/none.json: No such file or directory");
  EXPECT_NE(read_document(root).status().message().find("it is a folder"), std::string::npos);
  std::ofstream(root + "/good.json") << with_result(Json::object());
  EXPECT_TRUE(read_document(root + "/good.json").ok());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace zoffload::bench
