#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/commands.h"
#include "bench/context.h"
#include "bench/progress.h"
#include "tests/conformance/io_queue_helpers.h"

namespace zoffload::bench {
namespace {

struct Ended {
  Document document;
  ExitCode exit_code = ExitCode::kDone;
  std::string table;
};

Ended probe(const std::vector<std::string>& paths) {
  Ended run;
  Options options;
  options.paths = paths;
  Progress progress(Progress::Style::kNone);
  Context context(options, run.document, progress);
  const std::unique_ptr<Command> command = make_probe_command();
  const zoffload::Result<ExitCode> ended = command->run(context);
  if (ended.ok()) run.exit_code = *ended;
  EXPECT_TRUE(ended.ok()) << ended.status().to_string();
  run.table = command->print_table(run.document);
  return run;
}

uint64_t count_level(const Document& document, const std::string& level) {
  const Json& findings = document.host.at("findings");
  return static_cast<uint64_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Json& finding) { return finding["level"] == level; }));
}

// Goal: the document has the facts, the findings and their numbers; warnings are no failure, and
// the table is a line for each finding. Method: this machine and a new folder.
TEST(ProbeCommand, FillsTheDocument) {
  const test::TempFolder folder;
  const Ended run = probe({folder.path()});
  EXPECT_EQ(run.exit_code, ExitCode::kDone);
  EXPECT_TRUE(run.document.results.empty());
  EXPECT_EQ(run.document.host["paths"][0]["path"], folder.path());
  EXPECT_EQ(run.document.summary["warning_count"], count_level(run.document, "warn"));
  EXPECT_EQ(run.document.summary["failure_count"], 0);
  const auto lines = std::count(run.table.begin(), run.table.end(), '\n');
  EXPECT_EQ(static_cast<size_t>(lines), run.document.host["findings"].size());
  EXPECT_NE(run.table.find("nvme path   " + folder.path()), std::string::npos) << run.table;
}

// Goal: one folder that cannot be used is exit code 3, and all else is still said. Method: a good
// and a missing folder.
TEST(ProbeCommand, UnusableFolderIsUnable) {
  const test::TempFolder folder;
  const Ended run = probe({folder.path(), folder.file("missing")});
  EXPECT_EQ(run.exit_code, ExitCode::kUnable);
  EXPECT_EQ(run.document.summary["failure_count"], 1);
  EXPECT_EQ(count_level(run.document, "fail"), 1u);
  EXPECT_NE(run.table.find("fail  nvme path   " + folder.file("missing")), std::string::npos);
  EXPECT_EQ(run.document.host["paths"][0]["usable"], true);
  EXPECT_EQ(run.document.host["paths"][1]["usable"], false);
}

// Goal: without folders the machine is still described. Method: no path.
TEST(ProbeCommand, NeedsNoFolder) {
  const Ended run = probe({});
  EXPECT_EQ(run.exit_code, ExitCode::kDone);
  EXPECT_NE(run.table.find("io_uring"), std::string::npos);
  EXPECT_TRUE(run.document.host["paths"].empty());
}

}  // namespace
}  // namespace zoffload::bench
