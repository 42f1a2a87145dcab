#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "bench/facets.h"
#include "bench/html_report.h"

namespace zoffload::bench {
namespace {

Json result(const std::string& name, const Json& params, double bandwidth) {
  return {{"name", name},
          {"params", params},
          {"bandwidth_bytes_per_s", {{"samples", {bandwidth, bandwidth * 1.1, bandwidth * 0.9}}}}};
}

Json document(const std::vector<Json>& results) {
  return {{"schema", "zoffload-bench/1"}, {"results", results}};
}

Json sweep() {
  std::vector<Json> results;
  for (const char* name : {"read", "write"}) {
    for (int depth : {1, 8}) {
      for (int block : {1 << 18, 1 << 20}) {
        const Json params = {{"block_size_bytes", block}, {"queue_depth", depth}, {"path", "/a"}};
        results.push_back(result(name, params, 2e9));
      }
    }
  }
  return document(results);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Goal: a page needs nothing from elsewhere and runs no script, whatever the file says. Method: a
// document whose every text tries to; look for anything that a browser would fetch or run.
TEST(BenchHtmlReport, StandsAlone) {
  const std::string evil = "<script src=http://x/y.js></script><img src=x onerror=\"alert(1)\">";
  Json one = result(evil, {{evil, evil}}, 1e9);
  one["details"] = {{evil, evil}, {"stall_seconds", {{evil, 1.0}}}};
  one["latency_ns"] = {{"p50", 1}};
  one["series"] = {{1, 2}, {2, 3}};
  Json page = document({one, result(evil, {{evil, 2}}, 1e9)});
  page["label"] = page["started"] = evil;
  page["argv"] = {evil, evil};
  page["host"] = {
      {evil, evil},
      {"findings", {{{"level", evil}, {"what", evil}, {"says", evil}, {"remedy", evil}}}}};
  page["summary"] = {{"warnings", {evil}}, {evil, evil}};
  page["config"] = {{evil, evil}, {"aio", {{evil, evil}}}};
  page["tool"] = {{"version", evil}};
  for (const std::string& html :
       {render_html({page}, {evil}), render_html({page, page}, {evil, "b"})}) {
    for (const char* part : {"<script", "<img", "<link", "@import", "url(", "<iframe"}) {
      EXPECT_FALSE(has(html, part)) << part;
    }
    EXPECT_TRUE(has(html, "&lt;script src=http://x/y.js&gt;"));
  }
}

// Goal: each section appears where the results have something for it, and only there. Method: a
// sweep, an update with its bound, a pipeline with stalls, nothing at all.
TEST(BenchHtmlReport, SectionsFollowTheResults) {
  const std::string io = render_html({sweep()}, {"x"});
  EXPECT_TRUE(has(io, "read: bandwidth, higher is better"));
  EXPECT_TRUE(has(io, "256 KiB</text>"));
  EXPECT_TRUE(has(io, "</svg>queue depth 8</li>"));
  EXPECT_TRUE(has(io, "Best bandwidth, longer is better"));
  EXPECT_TRUE(has(io, "1.86 GiB/s (2.00 GB/s)"));
  EXPECT_FALSE(has(io, "Updates against memory"));
  EXPECT_FALSE(has(io, "Latency"));
  EXPECT_FALSE(has(io, "Stalls"));

  Json update = result("adam.fp32", {{"threads", 2}}, 1e9);
  update["details"] = {{"memory_bound_bytes_per_s", 2e9}};
  Json pipeline = result("pipeline", Json::object(), 1e9);
  pipeline["seconds"] = 10;
  pipeline["details"] = {{"stall_seconds", {{"load", 1.5}, {"store", 2.5}}}};
  const std::string other = render_html({document({update, pipeline})}, {"x"});
  EXPECT_TRUE(has(other, "0.93 GiB/s (1.00 GB/s), 50 % of memory&#39;s"));
  EXPECT_TRUE(has(other, "load 1.50 s, store 2.50 s; 40 % of 10.00 s"));
  EXPECT_FALSE(has(other, "Bandwidth by setting"));

  const std::string none = render_html({document({})}, {""});
  EXPECT_TRUE(has(none, "There are no results."));
  EXPECT_FALSE(has(none, "<figure"));
}

// Goal: warnings stand on top with their remedies, each once; what probe finds good is no warning.
// Method: the same warning twice, a bad and a good finding.
TEST(BenchHtmlReport, WarningsWithRemedies) {
  Json page = document({});
  page["summary"] = {{"warnings", {"slow", "slow"}}};
  page["host"]["findings"] = {
      {{"level", "warning"}, {"what", "memlock"}, {"says", "8 MiB"}, {"remedy", "ulimit -l"}},
      {{"level", "ok"}, {"what", "kernel"}, {"says", "6.18"}, {"remedy", ""}}};
  const std::string html = render_html({page}, {"x"});
  EXPECT_TRUE(has(html, "<ul><li>slow</li><li>memlock: 8 MiB; remedy: ulimit -l</li></ul>"));
  EXPECT_TRUE(has(html, "kernel</th><td>6.18</td>"));
  EXPECT_FALSE(has(html, "There are no results."));
}

// Goal: several documents lie over each other, told apart by label. Method: the same sweep twice.
TEST(BenchHtmlReport, OverlaysDocuments) {
  const std::string html = render_html({sweep(), sweep()}, {"before", "after"});
  EXPECT_TRUE(has(html, "</svg>before, queue depth 8</li>"));
  EXPECT_TRUE(has(html, "</svg>after, queue depth 8</li>"));
  EXPECT_TRUE(has(html, "zoffload-bench: 2 runs"));
}

// Goal: no plot has more lines than there are colours, and no result is lost. Method: forty rows
// that differ by depth alone, and by a path of text alone.
TEST(BenchHtmlReport, FacetsAreSplit) {
  std::vector<Json> results;
  for (int i = 1; i <= 40; ++i) {
    const std::string path = "/p" + std::to_string(i);
    results.push_back(result("read", {{"path", path}, {"queue_depth", 8}}, 1e9));
  }
  const std::vector<Row> rows = rows_of({document(results)}, {""});
  size_t count = 0;
  for (const Facet& facet : facets_of_single_rows(rows)) {
    EXPECT_LE(facet.lines.size(), 7u) << facet.title;
    for (const FacetLine& line : facet.lines) count += line.rows.size();
  }
  EXPECT_EQ(count, 40u);
  EXPECT_TRUE(facets_over_param(rows).empty());
}

// Goal: the axis is the block size, the lines are depths, and what else differs makes plots.
// Method: a sweep over two engines.
TEST(BenchHtmlReport, FacetsOverBlockSize) {
  std::vector<Json> results;
  for (const char* engine : {"io_uring", "threads"}) {
    for (int depth : {1, 8}) {
      for (int block : {1 << 18, 1 << 20}) {
        const Json params = {
            {"queue_depth", depth}, {"engine", engine}, {"block_size_bytes", block}};
        results.push_back(result("read", params, 2e9));
      }
    }
  }
  const std::vector<Row> rows = rows_of({document(results)}, {""});
  const std::vector<Facet> facets = facets_over_param(rows);
  ASSERT_EQ(facets.size(), 2u);
  EXPECT_EQ(facets[0].title, "read, engine io_uring");
  EXPECT_EQ(facets[0].x_key, "block_size_bytes");
  ASSERT_EQ(facets[0].lines.size(), 2u);
  EXPECT_EQ(facets[0].lines[1].label, "queue depth 8");
  EXPECT_EQ(facets[0].lines[1].rows.size(), 2u);
}

// Goal: a page reaches its file, and a failure is an error with the file's name. Method: a folder
// that exists and one that does not.
TEST(BenchHtmlReport, WritesTheFile) {
  std::string root = testing::TempDir() + "html_report_XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  ASSERT_TRUE(write_html(sweep(), root + "/x.html").ok());
  std::ifstream file(root + "/x.html");
  const std::string html{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  const Status status = write_html(sweep(), root + "/none/x.html");
  EXPECT_TRUE(has(status.message(), root + "/none/x.html")) << status.message();
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace zoffload::bench
