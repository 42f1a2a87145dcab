// Plots as HTML with SVG inside: a pure function from numbers to text. Sizes are in the units of a
// view box that the page scales; colours are the page's classes s0 to s6, so that the page decides
// how they look on dark ground and on paper, and every line has a marker and a dash of its own for
// who cannot tell colours apart. All text is escaped here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zoffload::bench {

constexpr size_t kPlotColours = 7;  // and as many markers and dashes: more lines look alike

std::string escape_html(std::string_view text);

struct Axis {
  enum class Scale : uint8_t { kLinear, kLog };

  std::string title;  // what it is, and the unit
  Scale scale = Scale::kLinear;
  bool from_zero = true;                              // linear axes only
  std::function<std::string(double)> text;            // the label of a tick; empty: the number
  std::vector<std::pair<double, std::string>> ticks;  // empty: round values are chosen
};

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string note;  // shown when the pointer rests on it
};

struct PlotLine {
  std::string label;
  std::vector<PlotPoint> points;  // drawn in the order of x
};

struct LinePlot {
  std::string title;
  Axis x;
  Axis y;
  std::vector<PlotLine> lines;
  bool markers = true;
};

// One row of a RowPlot: a bar, parts of a bar end to end, or samples. Its label and its text stand
// above it and wrap, so they are never cut.
struct PlotRow {
  struct Part {
    double value = 0;
    size_t colour = 0;
    std::string note;
  };

  std::string label;
  std::string text;  // the figure in words
  std::vector<Part> parts;
  std::vector<double> dots;     // with their median, and a box of the quartiles from five on
  std::optional<double> bound;  // a mark across the row
};

struct RowPlot {
  std::string title;
  Axis x;
  std::vector<PlotRow> rows;
  std::vector<std::string> legend;  // by colour; empty: none
  std::string bound_label;          // what the mark across the rows is; empty: no mark
};

// A <figure>. Points whose coordinates are not finite, or not positive on a log axis, are left out;
// empty text if nothing remains.
std::string draw(LinePlot plot);
std::string draw(RowPlot plot);

}  // namespace zoffload::bench
