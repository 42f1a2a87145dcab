#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "bench/svg_plot.h"

namespace zoffload::bench {
namespace {

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The text elements, in order.
std::vector<std::string> texts(const std::string& svg) {
  static const std::regex kText("<text[^>]*>([^<]*)</text>");
  std::vector<std::string> found;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kText), end; it != end; ++it) {
    found.push_back((*it)[1]);
  }
  return found;
}

LinePlot line_plot(const std::vector<PlotPoint>& points) {
  LinePlot plot;
  plot.title = "title";
  plot.x.title = "x title";
  plot.y.title = "y title";
  plot.lines = {{"line", points}};
  return plot;
}

// Goal: nothing that comes from a file can become markup. Method: the special letters, and a script
// in every text of a plot.
TEST(BenchSvgPlot, EscapesAllText) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'</a>\x01"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt; ");
  EXPECT_EQ(escape_html("Größe ⚡"), "Größe ⚡");
  const std::string script = "<script>\"'";
  LinePlot lines = line_plot({{1, 1, script}, {2, 2, script}});
  lines.title = lines.x.title = lines.y.title = lines.lines[0].label = script;
  lines.x.ticks = {{1, script}};
  RowPlot rows;
  rows.title = rows.x.title = rows.bound_label = script;
  rows.legend = {script};
  rows.rows = {{script, script, {{1, 0, script}}, {}, 2.0}};
  for (const std::string& svg : {draw(lines), draw(rows)}) {
    EXPECT_EQ(svg.find("<script"), std::string::npos) << svg;
    EXPECT_GE(count_of(svg, "&lt;script&gt;&quot;&#39;"), 4u);
  }
}

// Goal: axes have round ticks from zero and their titles. Method: values up to 3.4.
TEST(BenchSvgPlot, LinearAxis) {
  const std::vector<std::string> expected = {"y title", "0", "1", "2", "3",  "4",      "0",
                                             "2",       "4", "6", "8", "10", "x title"};
  EXPECT_EQ(texts(draw(line_plot({{0, 0.5, ""}, {10, 3.4, ""}}))), expected);
}

// Goal: a logarithmic axis is evenly spaced by factors. Method: ticks at equal factors lie at equal
// distances; the middle one of three is halfway.
TEST(BenchSvgPlot, LogAxis) {
  LinePlot plot = line_plot({{1, 1, ""}, {8, 1, ""}, {64, 1, ""}});
  plot.x.scale = Axis::Scale::kLog;
  plot.x.ticks = {{1, "one"}, {8, "eight"}, {64, "sixty-four"}};
  const std::string svg = draw(plot);
  static const std::regex kMarker("translate\\(([0-9.]+) ");
  std::vector<double> x;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kMarker), end; it != end; ++it) {
    x.push_back(std::stod((*it)[1]));
  }
  ASSERT_GE(x.size(), 3u);
  EXPECT_NEAR(x[1], (x[0] + x[2]) / 2, 0.2);
}

// Goal: labels of ticks never touch. Method: forty ticks on one axis; what is left fits its width.
TEST(BenchSvgPlot, CrowdedTicksAreThinned) {
  LinePlot plot = line_plot({{0, 1, ""}, {39, 1, ""}});
  for (int i = 0; i < 40; ++i) plot.x.ticks.emplace_back(i, "label " + std::to_string(i));
  const size_t count = count_of(draw(plot), ">label ");
  EXPECT_GE(count, 3u);
  EXPECT_LE(count, 8u);
}

// Goal: strange numbers make no strange picture. Method: points that cannot be drawn, one point, a
// constant, zeros, huge and tiny values: the plot is empty or all its coordinates are finite.
TEST(BenchSvgPlot, StrangeNumbers) {
  const double nan = std::nan("");
  EXPECT_EQ(draw(line_plot({})), "");
  EXPECT_EQ(draw(line_plot({{nan, 1, ""}, {1, INFINITY, ""}})), "");
  EXPECT_EQ(draw(RowPlot()), "");
  for (const auto& points : std::vector<std::vector<PlotPoint>>{{{1, 1, ""}},
                                                                {{0, 0, ""}},
                                                                {{0, 0, ""}, {1, 0, ""}},
                                                                {{1, 5, ""}, {2, 5, ""}},
                                                                {{1, 1e-12, ""}, {2, 1e15, ""}},
                                                                {{-3, -2, ""}, {3, 2, ""}}}) {
    for (const auto scale : {Axis::Scale::kLinear, Axis::Scale::kLog}) {
      LinePlot plot = line_plot(points);
      plot.x.scale = plot.y.scale = scale;
      const std::string svg = draw(plot);
      EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
      EXPECT_LT(svg.size(), 20000u);
    }
  }
  RowPlot rows;
  rows.rows = {{"a", "", {}, {5, nan, 5}, {}}, {"b", "", {}, {}, {}}};
  EXPECT_EQ(draw(rows).find("nan"), std::string::npos);
}

// Goal: samples show a box from five on, and always their median. Method: four and five of them.
TEST(BenchSvgPlot, BoxFromFiveSamples) {
  RowPlot plot;
  plot.rows = {{"row", "", {}, {1, 2, 3, 4}, {}}};
  EXPECT_EQ(count_of(draw(plot), "class=\"box\""), 0u);
  plot.rows[0].dots.push_back(5);
  EXPECT_EQ(count_of(draw(plot), "class=\"box\""), 1u);
  EXPECT_EQ(count_of(draw(plot), "class=\"median\""), 1u);
  EXPECT_EQ(count_of(draw(plot), "<circle"), 5u);
}

// Goal: parts stand end to end. Method: two parts; the second begins where the first ends.
TEST(BenchSvgPlot, StackedParts) {
  RowPlot plot;
  plot.rows = {{"row", "", {{2, 0, ""}, {2, 1, ""}}, {}, {}}};
  const std::string svg = draw(plot);
  static const std::regex kBar(
      "class=\"bar s[01]\" x=\"([0-9.]+)\" y=\"[0-9.]+\" width=\"([0-9.]+)\"");
  std::vector<std::pair<double, double>> bars;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kBar), end; it != end; ++it) {
    bars.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  }
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_NEAR(bars[0].first + bars[0].second, bars[1].first, 0.2);
  EXPECT_NEAR(bars[0].second, bars[1].second, 0.2);
}

}  // namespace
}  // namespace zoffload::bench
