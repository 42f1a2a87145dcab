#include "core/plan/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zoffload {
namespace {

using nlohmann::json;

Profile example() {
  Profile profile;
  profile.host = "node1";
  profile.measured = "2030-01-02T03:04:05+01:00";
  profile.paths = {{"/mnt/a", "io_uring", 1 << 20, 8, 3.5e9, 2.5e9, 2.9e9},
                   {"/mnt/b", "threads", 512 << 10, 16, 1e9, 1.5e9, 0.1}};
  profile.updates = {{"adamw", "fp32", "bf16", 8, 1.25e9}};
  profile.link = {25e9, 26e9, 40e9};
  profile.memory_bytes_per_s = 1e11;
  return profile;
}

json example_json() { return json::parse(print_profile(example())); }

void expect_mistake(const json& file, const std::string& message) {
  const Result<Profile> profile = parse_profile(file.dump());
  ASSERT_FALSE(profile.ok()) << message;
  EXPECT_EQ(profile.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(profile.status().message(), message);
}

// Values of every size, among them those that decimal fractions cannot say in few digits.
double any_figure(std::mt19937_64& random) {
  return std::ldexp(static_cast<double>(1 + random() % ((1ull << 53) - 1)),
                    static_cast<int>(random() % 120) - 90);
}

std::string any_text(std::mt19937_64& random) {
  static const std::vector<std::string> kParts = {"a", "Z", " ", "\"", "\\", "é", "\n", "/", "."};
  std::string text;
  for (uint64_t i = random() % 8; i > 0; --i) text += kParts[random() % kParts.size()];
  return text;
}

Profile any_profile(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto maybe = [&] { return random() % 2 == 0 ? 0 : any_figure(random); };
  Profile profile;
  profile.host = any_text(random);
  profile.measured = any_text(random);
  const char* const engines[] = {"io_uring", "libaio", "threads"};
  for (uint64_t i = random() % 4; i > 0; --i) {
    profile.paths.push_back({"/" + any_text(random) + std::to_string(i), engines[random() % 3],
                             4096 * (1 + random() % 1024),
                             1 + static_cast<uint32_t>(random() % 4096), any_figure(random),
                             any_figure(random), any_figure(random)});
  }
  for (uint64_t i = random() % 4; i > 0; --i) {
    profile.updates.push_back({any_text(random), any_text(random), any_text(random),
                               1 + static_cast<uint32_t>(random() % 256), any_figure(random)});
  }
  profile.link = {maybe(), maybe(), maybe()};
  profile.memory_bytes_per_s = maybe();
  return profile;
}

// Goal: what is written is what is read, to the last bit. Method: profiles of every shape by seed.
TEST(Profile, ParseIsTheInverseOfPrint) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Profile profile = any_profile(seed);
    const std::string text = print_profile(profile);
    const Result<Profile> parsed = parse_profile(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message() << "\nin " << text;
    EXPECT_EQ(*parsed, profile) << text;
  }
}

// Goal: the file is the documented one. Method: its keys and values, spelled out; and what was not
// measured is not in it.
TEST(Profile, PrintsTheDocumentedKeys) {
  EXPECT_EQ(example_json(), json::parse(R"({
      "schema": "zoffload-profile/1", "host": "node1", "measured": "2030-01-02T03:04:05+01:00",
      "paths": [{"path": "/mnt/a", "io_engine": "io_uring", "block_bytes": 1048576,
                 "queue_depth": 8, "read_bytes_per_s": 3.5e9, "write_bytes_per_s": 2.5e9,
                 "mixed_bytes_per_s": 2.9e9},
                {"path": "/mnt/b", "io_engine": "threads", "block_bytes": 524288,
                 "queue_depth": 16, "read_bytes_per_s": 1e9, "write_bytes_per_s": 1.5e9,
                 "mixed_bytes_per_s": 0.1}],
      "updates": [{"optimizer": "adamw", "format": "fp32", "dtype": "bf16", "threads": 8,
                   "numel_per_s": 1.25e9}],
      "link": {"to_device_bytes_per_s": 25e9, "to_host_bytes_per_s": 26e9,
               "both_bytes_per_s": 40e9},
      "memory_bytes_per_s": 1e11})"));
  EXPECT_EQ(json::parse(print_profile(Profile())),
            json::parse(R"({"schema": "zoffload-profile/1", "host": "", "measured": "",
                            "paths": [], "updates": []})"));
}

// Goal: every key is checked, and the message says which, what and why. Method: one fault at a
// time in a good file.
TEST(Profile, NamesWhatIsWrong) {
  const std::string figure = "; allowed: a number > 0";
  const std::string path = "; allowed: an absolute path, each once";
  const std::vector<std::pair<json, std::string>> faults = {
      {R"([{"path": "/host", "value": 7}])"_json, "host: found 7; allowed: a string"},
      {R"([{"path": "/paths", "value": {}}])"_json, "paths: found {}; allowed: a list of objects"},
      {R"([{"path": "/paths/1", "value": 3}])"_json, "paths[1]: found 3; allowed: an object"},
      {R"([{"path": "/paths/0/path", "value": "mnt"}])"_json,
       "paths[0].path: found \"mnt\"" + path},
      {R"([{"path": "/paths/1/path", "value": "/mnt/a/"}])"_json,
       "paths[1].path: found \"/mnt/a/\" again" + path},
      {R"([{"path": "/paths/0/io_engine", "value": "uring"}])"_json,
       "paths[0].io_engine: found \"uring\"; allowed: one of io_uring, libaio, threads"},
      {R"([{"path": "/paths/0/block_bytes", "value": 5000}])"_json,
       "paths[0].block_bytes: found 5000; allowed: a whole number >= 4096 and <= 1073741824, a "
       "multiple of 4096"},
      {R"([{"path": "/paths/0/queue_depth", "value": 0}])"_json,
       "paths[0].queue_depth: found 0; allowed: a whole number >= 1 and <= 4096"},
      {R"([{"path": "/paths/0/queue_depth", "value": -1}])"_json,
       "paths[0].queue_depth: found -1; allowed: a whole number >= 1 and <= 4096"},
      {R"([{"path": "/paths/0/read_bytes_per_s", "value": 0}])"_json,
       "paths[0].read_bytes_per_s: found 0" + figure},
      {R"([{"path": "/paths/1/mixed_bytes_per_s", "value": "fast"}])"_json,
       "paths[1].mixed_bytes_per_s: found \"fast\"" + figure},
      {R"([{"path": "/updates/0/numel_per_s", "value": -2.5}])"_json,
       "updates[0].numel_per_s: found -2.5" + figure},
      {R"([{"path": "/updates/0/threads", "value": 1.5}])"_json,
       "updates[0].threads: found 1.5; allowed: a whole number >= 1 and <= 65536"},
      {R"([{"path": "/link", "value": 25e9}])"_json,
       "link: found 25000000000.0; allowed: an object"},
      {R"([{"path": "/link/both_bytes_per_s", "value": null}])"_json,
       "link.both_bytes_per_s: found null" + figure},
      {R"([{"path": "/memory_bytes_per_s", "value": 0}])"_json,
       "memory_bytes_per_s: found 0" + figure},
      {R"([{"path": "/memory_byte_per_s", "value": 1}])"_json,
       "memory_byte_per_s: unknown key; the nearest known one is memory_bytes_per_s"},
      {R"([{"path": "/paths/1/queu_depth", "value": 1}])"_json,
       "paths[1].queu_depth: unknown key; the nearest known one is paths[1].queue_depth"},
      {R"([{"path": "/schema", "value": "zoffload-profile/2"}])"_json,
       "schema: found \"zoffload-profile/2\"; allowed: zoffload-profile/1"},
  };
  for (auto [fault, message] : faults) {
    fault[0]["op"] = "add";  // replaces what is there, but for an item of a list
    if (fault[0]["path"] == "/paths/1") fault[0]["op"] = "replace";
    expect_mistake(example_json().patch(fault), message);
  }
}

// Goal: nothing that an entry needs may be missing. Method: each key of the file and of the first
// entries, removed.
TEST(Profile, NamesWhatIsMissing) {
  for (const char* where : {"", "/paths/0", "/updates/0"}) {
    const json::json_pointer place(where);
    const json whole = example_json();
    for (const auto& item : whole[place].items()) {
      json file = example_json();
      file[place].erase(item.key());
      const bool is_optional = item.key() == "link" || item.key() == "memory_bytes_per_s";
      const Result<Profile> profile = parse_profile(file.dump());
      ASSERT_EQ(profile.ok(), is_optional) << item.key();
      if (is_optional) continue;
      EXPECT_NE(profile.status().message().find(item.key() + ": found nothing; allowed: "),
                std::string::npos)
          << profile.status().message();
    }
  }
}

// Goal: all that is wrong is said at once; what is no JSON object is said too. Method: a file with
// three faults, and texts that are none.
TEST(Profile, ListsAllMistakes) {
  json file = example_json();
  file["host"] = 1;
  file["paths"][0]["queue_depth"] = "8";
  file["typo"] = true;
  const std::string message = parse_profile(file.dump()).status().message();
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 2) << message;
  for (const char* text : {"", "[]", "{", R"({"host": "a", "host": "b"})"}) {
    EXPECT_EQ(parse_profile(text).status().code(), Code::kInvalidArgument) << text;
  }
}

// Goal: a folder gets the figures of the file system or folder it lies in. Method: nested entries,
// in either order; a name that only begins alike holds nothing.
TEST(Profile, FindsTheDeepestFolder) {
  Profile profile;
  for (const char* path : {"/", "/mnt/a", "/mnt/a/deep/"}) profile.paths.emplace_back().path = path;
  for (int order = 0; order < 2; ++order) {
    const auto found = [&](const char* path) { return profile.find(path)->path; };
    EXPECT_EQ(found("/mnt/a"), "/mnt/a");
    EXPECT_EQ(found("/mnt/a/"), "/mnt/a");
    EXPECT_EQ(found("/mnt/a/x/y"), "/mnt/a");
    EXPECT_EQ(found("/mnt/a/deep"), "/mnt/a/deep/");
    EXPECT_EQ(found("/mnt/a/deep/x"), "/mnt/a/deep/");
    EXPECT_EQ(found("/mnt/ab"), "/");
    EXPECT_EQ(found("/"), "/");
    std::reverse(profile.paths.begin(), profile.paths.end());
  }
  profile = example();
  EXPECT_EQ(profile.find("/mnt"), nullptr);
  EXPECT_EQ(profile.find("/mnt/ab"), nullptr);
  EXPECT_EQ(Profile().find("/mnt"), nullptr);
}

}  // namespace
}  // namespace zoffload
