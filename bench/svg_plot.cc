#include "bench/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/base/check.h"

namespace zoffload::bench {
namespace {

constexpr double kWidth = 480;
constexpr double kHeight = 290;
constexpr double kTop = 26;
constexpr double kBottom = 42;
constexpr double kRowHeight = 20;
constexpr double kDotMargin = 8;
constexpr double kCharWidth = 7.6;  // of the letters of the axes, on the safe side

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string attribute(const char* name, double value) {
  return std::string(" ") + name + "=\"" + number(value) + "\"";
}

std::string line(const char* css, double x1, double y1, double x2, double y2) {
  return std::string("<line class=\"") + css + "\"" + attribute("x1", x1) + attribute("y1", y1) +
         attribute("x2", x2) + attribute("y2", y2) + "/>";
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return "<text" + attribute("x", x) + attribute("y", y) + " text-anchor=\"" + anchor + "\">" +
         escape_html(text) + "</text>";
}

std::string note_text(const std::string& note) {
  return note.empty() ? "" : "<title>" + escape_html(note) + "</title>";
}

std::string colour_class(size_t index) { return "s" + std::to_string(index % kPlotColours); }

// Where the values of an axis lie in the picture.
struct Span {
  double low = 0;
  double high = 1;
  double from = 0;  // coordinate of `low`
  double to = 1;
  bool log = false;

  double at(double value) const {
    const double share =
        log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
};

double round_step(double rough) {
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (rough <= factor * decade * (1 + 1e-9)) return factor * decade;
  }
  return 10 * decade;
}

// Widens the span to round values and labels them.
void choose_linear(Axis& axis, Span& span) {
  // Samples that lie close together are looked at from near, all others from zero.
  const bool near = !axis.from_zero && span.low > span.high / 2;
  const double low = near ? span.low : std::min(0.0, span.low);
  double extent = span.high - low;
  if (!(extent > 0)) extent = span.high > 0 ? span.high / 10 : 1;
  const double step = round_step(extent / 5);
  span.low = std::floor(low / step * (1 + 1e-9)) * step;
  span.high = std::ceil((low + extent) / step * (1 - 1e-9)) * step;
  if (!axis.ticks.empty()) return;
  for (double value = span.low; value <= span.high + step / 2; value += step) {
    const double tick = std::abs(value) < step / 1e6 ? 0 : value;
    axis.ticks.emplace_back(tick, axis.text(tick));
  }
}

void choose_log(Axis& axis, Span& span) {
  if (!axis.ticks.empty()) {
    span.low = std::min(span.low, axis.ticks.front().first);
    span.high = std::max(span.high, axis.ticks.back().first);
    if (!(span.high > span.low)) {  // one value stands in the middle
      span.low /= 2;
      span.high *= 2;
    }
    return;
  }
  std::vector<double> rounds;
  const double first = std::floor(std::log10(span.low));
  const double last = std::ceil(std::log10(span.high));
  for (double decade = first; decade <= last; ++decade) {
    for (const double factor : {1.0, 2.0, 5.0}) rounds.push_back(factor * std::pow(10, decade));
  }
  const auto above = std::upper_bound(rounds.begin(), rounds.end(), span.low * (1 + 1e-9));
  const auto begin = above == rounds.begin() ? above : above - 1;
  auto end = std::lower_bound(begin, rounds.end(), span.high * (1 - 1e-9));
  if (end == begin) ++end;
  const bool decades_only = end - begin > 9;
  for (auto it = begin; it <= end && it != rounds.end(); ++it) {
    const bool is_decade = (it - rounds.begin()) % 3 == 0;
    if (!decades_only || is_decade) axis.ticks.emplace_back(*it, axis.text(*it));
  }
  span.low = *begin;
  span.high = *end;
}

Span choose(Axis& axis, double low, double high) {
  Span span{low, high, 0, 1, axis.scale == Axis::Scale::kLog};
  if (!axis.text) {
    axis.text = [](double value) {
      char text[32];
      std::snprintf(text, sizeof text, "%.6g", value);
      return std::string(text);
    };
  }
  span.log ? choose_log(axis, span) : choose_linear(axis, span);
  return span;
}

double width_of(const std::string& text) {
  // Bytes that continue a UTF-8 letter take no place.
  const auto letters =
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return kCharWidth * static_cast<double>(letters);
}

// The ticks below the picture, without those that would touch their neighbour.
std::string draw_x_ticks(const Axis& axis, const Span& span, double y, double grid_to) {
  std::string out;
  double free_from = -1e9;
  for (const auto& [value, text] : axis.ticks) {
    const double x = span.at(value);
    const double half = width_of(text) / 2;
    const double middle = std::clamp(x, half, kWidth - half);
    out += line("grid", x, grid_to, x, y);
    if (middle - half < free_from) continue;
    out += label(middle, y + 16, "middle", text);
    free_from = middle + half + kCharWidth;
  }
  return out;
}

std::string marker(size_t index, double x, double y, const std::string& note) {
  constexpr std::array<const char*, kPlotColours> kShapes = {
      "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",                   // disc
      "M-3.5 -3.5h7v7h-7z",                                    // square
      "M0 -4.5l4.5 8h-9z",                                     // triangle
      "M0 -5l5 5l-5 5l-5 -5z",                                 // diamond
      "M0 4.5l4.5 -8h-9z",                                     // triangle, down
      "M-4 -1.5h2.5v-2.5h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5z",  // plus
      "M-4.5 -2l2.5 -2.5l2 2l2 -2l2.5 2.5l-2 2l2 2l-2.5 2.5l-2 -2l-2 2l-2.5 -2.5l2 -2z"};  // cross
  return "<path class=\"dot " + colour_class(index) + "\" transform=\"translate(" + number(x) +
         " " + number(y) + ")\" d=\"" + kShapes[index % kPlotColours] + "\">" + note_text(note) +
         "</path>";
}

std::string svg_begin(double height, const std::string& title) {
  return "<svg viewBox=\"0 0 " + number(kWidth) + " " + number(height) +
         "\" role=\"img\" aria-label=\"" + escape_html(title) + "\">";
}

std::string figure(const std::string& title, const std::string& inside) {
  return "<figure><figcaption>" + escape_html(title) + "</figcaption>" + inside + "</figure>\n";
}

std::string legend_entry(const std::string& key, const std::string& text) {
  return "<li><svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\">" + key + "</svg>" +
         escape_html(text) + "</li>";
}

// A dashed line that goes up and down at every point is hard to follow.
std::string curve_class(const LinePlot& plot, size_t index) {
  return (plot.markers ? "curve dashed " : "curve ") + colour_class(index);
}

std::string line_legend(const LinePlot& plot) {
  if (plot.lines.size() == 1 && plot.lines[0].label.empty()) return "";
  std::string out = "<ul class=\"legend\">";
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    const std::string key = line(curve_class(plot, i).c_str(), 0, 6, 28, 6) + marker(i, 14, 6, "");
    out += legend_entry(key, plot.lines[i].label);
  }
  return out + "</ul>";
}

bool is_drawable(const Axis& axis, double value) {
  return std::isfinite(value) && (axis.scale == Axis::Scale::kLinear || value > 0);
}

void drop_what_cannot_be_drawn(LinePlot& plot) {
  for (PlotLine& line : plot.lines) {
    std::erase_if(line.points, [&plot](const PlotPoint& point) {
      return !is_drawable(plot.x, point.x) || !is_drawable(plot.y, point.y);
    });
    std::stable_sort(line.points.begin(), line.points.end(),
                     [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  }
  std::erase_if(plot.lines, [](const PlotLine& line) { return line.points.empty(); });
}

std::string draw_curve(const LinePlot& plot, size_t index, const Span& x, const Span& y) {
  const PlotLine& line = plot.lines[index];
  std::string out;
  if (line.points.size() > 1) {
    out = "<polyline class=\"" + curve_class(plot, index) + "\" points=\"";
    for (const PlotPoint& point : line.points) {
      out += number(x.at(point.x)) + "," + number(y.at(point.y)) + " ";
    }
    out.back() = '"';
    out += ">" + note_text(plot.markers ? "" : line.label) + "</polyline>";
  }
  // Without markers on every point there is one, each line's at another place.
  const size_t lone = line.points.size() * (index + 1) / (plot.lines.size() + 1);
  for (size_t i = 0; i < line.points.size(); ++i) {
    const PlotPoint& point = line.points[i];
    if (!plot.markers && i != lone) continue;
    out += marker(index, x.at(point.x), y.at(point.y), point.note);
  }
  return out;
}

std::string draw_legend(const RowPlot& plot) {
  if (plot.legend.empty() && plot.bound_label.empty()) return "";
  std::string out = "<ul class=\"legend\">";
  for (size_t i = 0; i < plot.legend.size(); ++i) {
    out += legend_entry(
        "<rect class=\"bar " + colour_class(i) + "\" x=\"4\" width=\"20\" height=\"12\"/>",
        plot.legend[i]);
  }
  if (!plot.bound_label.empty()) {
    out += legend_entry(line("bound", 14, 0, 14, 12), plot.bound_label);
  }
  return out + "</ul>";
}

// By linear interpolation between neighbours. REQUIRES: `sorted` is not empty.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

std::string draw_dots(std::vector<double> dots, const Span& span) {
  constexpr size_t kBoxFrom = 5;
  std::sort(dots.begin(), dots.end());
  const double middle = kRowHeight / 2;
  std::string out = line("whisker", span.at(dots.front()), middle, span.at(dots.back()), middle);
  if (dots.size() >= kBoxFrom) {
    const double left = span.at(quantile(dots, 0.25));
    out += "<rect class=\"box\"" + attribute("x", left) + attribute("y", 3) +
           attribute("width", std::max(1.0, span.at(quantile(dots, 0.75)) - left)) +
           attribute("height", kRowHeight - 6) + "/>";
  }
  for (const double dot : dots) {
    out += "<circle class=\"sample s0\"" + attribute("cx", span.at(dot)) + attribute("cy", middle) +
           " r=\"4\"/>";
  }
  const double median = span.at(quantile(dots, 0.5));
  return out + line("median", median, 1, median, kRowHeight - 1);
}

std::string draw_row(const PlotRow& row, const Span& span, const std::string& title) {
  std::string out = "<div class=\"row\"><span>" + escape_html(row.label) + "</span><span>" +
                    escape_html(row.text) + "</span></div>" +
                    svg_begin(kRowHeight, title + ": " + row.label + ": " + row.text) +
                    line("ground", span.from, kRowHeight / 2, span.to, kRowHeight / 2);
  double end = std::max(0.0, span.low);
  for (const PlotRow::Part& part : row.parts) {
    const double left = span.at(end);
    end += part.value;
    out += "<rect class=\"bar " + colour_class(part.colour) + "\"" + attribute("x", left) +
           attribute("y", 3) + attribute("width", std::max(0.5, span.at(end) - left)) +
           attribute("height", kRowHeight - 6) + ">" + note_text(part.note) + "</rect>";
  }
  if (!row.dots.empty()) out += draw_dots(row.dots, span);
  if (row.bound) out += line("bound", span.at(*row.bound), 0, span.at(*row.bound), kRowHeight);
  return out + "</svg>";
}

double length_of(const PlotRow& row) {
  double length = 0;
  for (const PlotRow::Part& part : row.parts) length += part.value;
  return length;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: {
        const bool is_control = static_cast<unsigned char>(c) < 0x20 && c != '\n';
        out += is_control || c == 0x7f ? ' ' : c;
      }
    }
  }
  return out;
}

std::string draw(LinePlot plot) {
  drop_what_cannot_be_drawn(plot);
  if (plot.lines.empty()) return "";
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  for (const PlotLine& line : plot.lines) {
    for (const PlotPoint& point : line.points) {
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
      y_low = std::min(y_low, point.y);
      y_high = std::max(y_high, point.y);
    }
  }
  Span x = choose(plot.x, x_low, x_high);
  Span y = choose(plot.y, y_low, y_high);
  double left = 0;
  for (const auto& [value, text] : plot.y.ticks) left = std::max(left, width_of(text) + 12);
  const double right = kWidth - (plot.markers ? 24 : 8);
  const double inset = plot.markers ? 16 : 0;  // keeps the outermost markers off the frame
  x.from = left + inset;
  x.to = right;
  y.from = kHeight - kBottom;
  y.to = kTop;

  std::string out = svg_begin(kHeight, plot.title);
  out += label(0, 12, "start", plot.y.title);
  for (const auto& [value, text] : plot.y.ticks) {
    out += line("grid", left, y.at(value), kWidth, y.at(value));
    out += label(left - 6, y.at(value) + 4, "end", text);
  }
  out += draw_x_ticks(plot.x, x, y.from, kTop);
  out += line("axis", left, y.from, kWidth, y.from);
  out += label((left + kWidth) / 2, kHeight - 6, "middle", plot.x.title);
  for (size_t i = 0; i < plot.lines.size(); ++i) out += draw_curve(plot, i, x, y);
  return figure(plot.title, out + "</svg>" + line_legend(plot));
}

std::string draw(RowPlot plot) {
  ZO_CHECK(plot.x.scale == Axis::Scale::kLinear);
  double low = INFINITY, high = -INFINITY;
  for (PlotRow& row : plot.rows) {
    std::erase_if(row.dots, [](double dot) { return !std::isfinite(dot); });
    std::erase_if(row.parts, [](const PlotRow::Part& part) {
      return !std::isfinite(part.value) || part.value < 0;
    });
    if (!row.parts.empty()) low = std::min(low, 0.0);
    for (const double dot : row.dots) low = std::min(low, dot);
    for (const double dot : row.dots) high = std::max(high, dot);
    high = std::max({high, length_of(row), row.bound.value_or(0)});
  }
  if (!std::isfinite(low) || !std::isfinite(high)) return "";
  Span span = choose(plot.x, low, high);
  const bool has_dots = std::any_of(plot.rows.begin(), plot.rows.end(),
                                    [](const PlotRow& row) { return !row.dots.empty(); });
  span.from = has_dots ? kDotMargin : 1;
  span.to = kWidth - kDotMargin;
  if (span.low > 0) plot.x.title += ", not from zero";

  std::string out = draw_legend(plot);
  for (const PlotRow& row : plot.rows) out += draw_row(row, span, plot.title);
  out += svg_begin(40, plot.title + ": axis") + line("axis", span.from, 6, span.to, 6);
  out += draw_x_ticks(plot.x, span, 6, 0) + label(kWidth / 2, 37, "middle", plot.x.title);
  return figure(plot.title, out + "</svg>");
}

}  // namespace zoffload::bench
