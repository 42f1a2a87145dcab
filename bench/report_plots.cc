#include "bench/report_plots.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "bench/quantity.h"
#include "bench/read_document.h"
#include "bench/svg_plot.h"
#include "bench/value_text.h"
#include "core/base/format.h"

namespace zoffload::bench {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr const char* kRateTitle = "GiB/s (1 GiB/s is 1.07 GB/s)";
constexpr size_t kSeriesPointsMax = 240;

std::string fixed(const char* form, double value) {
  char text[32];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

Axis rate_axis() {
  Axis axis;
  axis.title = kRateTitle;
  return axis;
}

// An axis over a parameter: sizes and counts double from tick to tick, so it is logarithmic.
Axis param_axis(const Facet& facet) {
  Axis axis;
  axis.title = key_text(facet.x_key) + " (log scale)";
  axis.scale = Axis::Scale::kLog;
  std::vector<double> values;
  for (const FacetLine& line : facet.lines) {
    for (const Row* row : line.rows) values.push_back(row->params[facet.x_key].get<double>());
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  for (const double value : values) {
    const bool is_bytes = facet.x_key.ends_with("_bytes");
    axis.ticks.emplace_back(value, is_bytes ? short_bytes(value) : fixed("%.6g", value));
  }
  return axis;
}

std::string draw_facet(const Facet& facet) {
  LinePlot plot;
  plot.title = facet.title + ": bandwidth, higher is better";
  plot.x = param_axis(facet);
  plot.y = rate_axis();
  for (const FacetLine& line : facet.lines) {
    PlotLine drawn{line.label, {}};
    for (const Row* row : line.rows) {
      if (row->bandwidth.empty()) continue;
      const double x = row->params[facet.x_key].get<double>();
      const double median = row->bandwidth.median();
      drawn.points.push_back({x, median / kGiB,
                              key_text(facet.x_key) + " " +
                                  value_text(facet.x_key, row->params[facet.x_key]) + ", " +
                                  line.label + ": " + format_rate(median)});
    }
    if (!drawn.points.empty()) plot.lines.push_back(std::move(drawn));
  }
  return draw(std::move(plot));
}

// A line for each row of a facet; those without points are left out.
template <typename PointsOf>
std::vector<PlotLine> lines_of(const Facet& facet, const PointsOf& points_of) {
  std::vector<PlotLine> lines;
  for (const FacetLine& line : facet.lines) {
    for (size_t i = 0; i < line.rows.size(); ++i) {
      const std::string number = i == 0 ? "" : " (" + std::to_string(i + 1) + ")";
      std::vector<PlotPoint> points = points_of(*line.rows[i]);
      if (!points.empty()) lines.push_back({line.label + number, std::move(points)});
    }
  }
  return lines;
}

constexpr std::array<std::pair<const char*, const char*>, 6> kPercentiles = {{{"min", "min"},
                                                                              {"p50", "p50"},
                                                                              {"p90", "p90"},
                                                                              {"p99", "p99"},
                                                                              {"p99_9", "p99.9"},
                                                                              {"max", "max"}}};

std::vector<PlotPoint> latency_points(const Row& row) {
  std::vector<PlotPoint> points;
  const Json& latency = at_or_null(row.result, "latency_ns");
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    const Json& value = at_or_null(latency, kPercentiles[i].first);
    if (!value.is_number() || value.get<double>() <= 0) continue;
    const double ns = value.get<double>();
    points.push_back({static_cast<double>(i), ns,
                      std::string(kPercentiles[i].second) + ": " + nanoseconds_text(ns)});
  }
  return points;
}

// At most kSeriesPointsMax points: the means of neighbours.
std::vector<PlotPoint> series_points(const Row& row) {
  const Json& series = at_or_null(row.result, "series");
  const size_t stride = series.size() / kSeriesPointsMax + 1;
  std::vector<PlotPoint> points;
  for (size_t begin = 0; begin < series.size(); begin += stride) {
    const size_t end = std::min(begin + stride, series.size());
    PlotPoint point;
    for (size_t i = begin; i < end; ++i) {
      point.x += series[i][0].get<double>() / static_cast<double>(end - begin);
      point.y += series[i][1].get<double>() / static_cast<double>(end - begin) / kGiB;
    }
    points.push_back(point);
  }
  return points;
}

// "read", "write", "mixed": what the first word of a name says of the direction; else empty.
std::string direction(const Row& row) {
  const std::string word = row.name.substr(0, row.name.find_first_of(".:_ "));
  return word == "read" || word == "write" || word == "mixed" ? word : "";
}

std::string engine_of(const Row& row) {
  return string_or(at_or_null(row.result, "details"), "engine",
                   string_or(row.params, "engine", "engine not said"));
}

struct Best {
  std::string group;  // document and engine
  std::string name;
  const Row* row = nullptr;
  size_t count = 0;
};

std::vector<Best> best_rows(const std::vector<Row>& rows) {
  std::vector<Best> bests;
  for (const Row& row : rows) {
    if (direction(row).empty() || row.bandwidth.empty()) continue;
    const std::string group = (row.document.empty() ? "" : row.document + ", ") + engine_of(row);
    auto best = std::find_if(bests.begin(), bests.end(), [&](const Best& other) {
      return other.group == group && other.name == row.name;
    });
    if (best == bests.end()) best = bests.insert(bests.end(), Best{group, row.name, &row, 0});
    ++best->count;
    if (row.bandwidth.median() > best->row->bandwidth.median()) best->row = &row;
  }
  // The bars of a group stand together.
  std::vector<std::string> order;
  for (const Best& best : bests) {
    if (std::find(order.begin(), order.end(), best.group) == order.end()) {
      order.push_back(best.group);
    }
  }
  std::stable_sort(bests.begin(), bests.end(), [&order](const Best& a, const Best& b) {
    return std::find(order.begin(), order.end(), a.group) <
           std::find(order.begin(), order.end(), b.group);
  });
  return bests;
}

// What memory alone would allow, in the bytes of the update's own streams.
std::optional<double> bound_of(const Row& row) {
  for (const char* key : {"memory_bound_bytes_per_s", "memory_bytes_per_s", "bound_bytes_per_s"}) {
    const Json& bound = at_or_null(at_or_null(row.result, "details"), key);
    if (bound.is_number() && bound.get<double>() > 0) return bound.get<double>();
  }
  return {};
}

// The colour of a legend's entry, made where it is new.
size_t colour_of(std::vector<std::string>& legend, const std::string& entry) {
  const auto found = std::find(legend.begin(), legend.end(), entry);
  if (found != legend.end()) return static_cast<size_t>(found - legend.begin());
  legend.push_back(entry);
  return legend.size() - 1;
}

}  // namespace

std::string section(const std::string& title, const std::string& how, const std::string& body) {
  if (body.empty()) return "";
  return "<section><h2>" + escape_html(title) + "</h2>" +
         (how.empty() ? "" : "<p class=\"how\">" + escape_html(how) + "</p>") + body +
         "</section>\n";
}

std::string bandwidth_section(const std::vector<Row>& rows) {
  std::string body;
  for (const Facet& facet : facets_over_param(rows)) body += draw_facet(facet);
  if (!body.empty()) body = "<div class=\"plots\">" + body + "</div>";
  return section("Bandwidth by setting",
                 "Each point is the median of the repeats. Higher is better; where a line turns "
                 "flat, more only adds latency.",
                 body);
}

std::string best_section(const std::vector<Row>& rows) {
  const std::vector<Best> bests = best_rows(rows);
  if (bests.size() < 2) return "";
  RowPlot plot;
  plot.title = "Best bandwidth, longer is better";
  plot.x = rate_axis();
  std::vector<std::string> varying = varying_params(rows);
  std::erase(varying, "engine");
  for (const Best& best : bests) {
    const double median = best.row->bandwidth.median();
    std::string label = best.group + ", " + best.name;
    if (best.count > 1) {
      const std::string settings = params_text(best.row->params, varying);
      label +=
          ": best of " + std::to_string(best.count) + (settings.empty() ? "" : ", " + settings);
    }
    const size_t colour = colour_of(plot.legend, best.name);
    plot.rows.push_back({label, format_rate(median), {{median / kGiB, colour, label}}, {}, {}});
  }
  return section("Reading and writing by engine", "", draw(std::move(plot)));
}

std::string samples_section(const std::vector<Row>& rows) {
  const std::vector<std::string> varying = varying_params(rows);
  std::vector<std::pair<std::string, RowPlot>> plots;  // by name
  for (const Row& row : rows) {
    if (row.bandwidth.empty()) continue;
    auto found = std::find_if(plots.begin(), plots.end(),
                              [&row](const auto& plot) { return plot.first == row.name; });
    if (found == plots.end()) {
      found = plots.insert(plots.end(), {row.name, RowPlot()});
      found->second.title = row.name + ": bandwidth of each repeat, further right is better";
      found->second.x = rate_axis();
      found->second.x.from_zero = false;
    }
    PlotRow drawn;
    drawn.label = row_text(row, varying);
    drawn.text = format_rate(row.bandwidth.median());
    for (const double value : row.bandwidth.values) drawn.dots.push_back(value / kGiB);
    found->second.rows.push_back(std::move(drawn));
  }
  std::string body;
  for (auto& [name, plot] : plots) body += draw(std::move(plot));
  if (!body.empty()) body = "<div class=\"plots\">" + body + "</div>";
  return section("Repeats",
                 "A dot for each repeat, a line at their median, from five repeats on a box around "
                 "their middle half. The closer the dots, the more a figure can be trusted.",
                 body);
}

std::string latency_section(const std::vector<Row>& rows) {
  std::string body;
  for (const Facet& facet : facets_of_single_rows(rows)) {
    LinePlot plot;
    plot.title = facet.title + ": latency, lower is better";
    plot.x.title = "share of the requests that were at least as fast";
    for (size_t i = 0; i < kPercentiles.size(); ++i) {
      plot.x.ticks.emplace_back(static_cast<double>(i), kPercentiles[i].second);
    }
    plot.y.title = "from submit to completion (log scale)";
    plot.y.scale = Axis::Scale::kLog;
    plot.y.text = nanoseconds_text;
    plot.lines = lines_of(facet, latency_points);
    body += draw(std::move(plot));
  }
  if (!body.empty()) body = "<div class=\"plots\">" + body + "</div>";
  return section("Latency",
                 "Lower is better, and a flat line is steadier: p99 is what one request of a "
                 "hundred exceeds. The scale is logarithmic.",
                 body);
}

std::string series_section(const std::vector<Row>& rows) {
  std::string body;
  for (const Facet& facet : facets_of_single_rows(rows)) {
    LinePlot plot;
    plot.title = facet.title + ": bandwidth over time, higher and steadier is better";
    plot.x.title = "seconds since the start";
    plot.y = rate_axis();
    plot.lines = lines_of(facet, series_points);
    plot.markers = false;
    body += draw(std::move(plot));
  }
  if (!body.empty()) body = "<div class=\"plots\">" + body + "</div>";
  return section("Bandwidth over time",
                 "A fall that stays tells of a full write cache or of heat: run longer to see the "
                 "speed that a long training gets.",
                 body);
}

std::string bound_section(const std::vector<Row>& rows) {
  RowPlot plot;
  plot.title = "Updates against memory, longer is better";
  plot.x = rate_axis();
  plot.bound_label = "what memory alone allows, measured in the same run";
  const std::vector<std::string> varying = varying_params(rows);
  for (const Row& row : rows) {
    const std::optional<double> bound = bound_of(row);
    if (!bound || row.bandwidth.empty()) continue;
    const double median = row.bandwidth.median();
    const std::string text =
        format_rate(median) + ", " + fixed("%.0f", 100 * median / *bound) + " % of memory's";
    plot.rows.push_back(
        {row_text(row, varying), text, {{median / kGiB, 0, text}}, {}, *bound / kGiB});
  }
  return section("Updates against memory bandwidth",
                 "The mark is the bound: a bar that reaches it cannot be made longer by more "
                 "threads.",
                 draw(std::move(plot)));
}

std::string stalls_section(const std::vector<Row>& rows) {
  RowPlot plot;
  plot.title = "Stalls, shorter is better";
  plot.x.title = "seconds in which the pass waited";
  const std::vector<std::string> varying = varying_params(rows);
  for (const Row& row : rows) {
    const Json& stalls = at_or_null(at_or_null(row.result, "details"), "stall_seconds");
    if (!stalls.is_object()) continue;
    PlotRow drawn;
    drawn.label = row_text(row, varying);
    double sum = 0;
    for (const auto& [key, value] : stalls.items()) {
      if (!value.is_number() || value.get<double>() < 0) continue;
      const double seconds = value.get<double>();
      sum += seconds;
      const std::string note = key_text(key) + " " + value_text("seconds", value);
      drawn.parts.push_back({seconds, colour_of(plot.legend, key_text(key)), note});
      drawn.text += (drawn.text.empty() ? "" : ", ") + note;
    }
    const Json& measured = at_or_null(row.result, "seconds");
    if (measured.is_number() && measured.get<double>() > 0) {
      drawn.text += "; " + fixed("%.0f", 100 * sum / measured.get<double>()) + " % of " +
                    format_seconds(measured.get<double>());
    }
    if (!drawn.parts.empty()) plot.rows.push_back(std::move(drawn));
  }
  return section("What the pipeline waited for", "", draw(std::move(plot)));
}

}  // namespace zoffload::bench
