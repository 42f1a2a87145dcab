#include "bench/facets.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bench/read_document.h"
#include "bench/svg_plot.h"
#include "bench/value_text.h"

namespace zoffload::bench {
namespace {

// The parameters that make an axis, the most telling ones first.
constexpr std::array<const char*, 8> kAxisKeys = {
    "block_size_bytes", "size_bytes", "copy_bytes", "numel",
    "queue_depth",      "threads",    "workers",    "depth"};

using Keys = std::vector<std::string>;

bool is_numeric(const std::vector<const Row*>& rows, const std::string& key) {
  return std::all_of(rows.begin(), rows.end(), [&key](const Row* row) {
    const Json& value = at_or_null(row->params, key);
    return value.is_number() && value.get<double>() > 0;
  });
}

Keys varying(const std::vector<const Row*>& rows) {
  std::vector<const Json*> params;
  for (const Row* row : rows) params.push_back(&row->params);
  return differing_keys(params);
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + ", " + b;
}

// Rows with equal text, in the order of their first appearance.
template <typename TextOf>
std::vector<FacetLine> grouped(const std::vector<const Row*>& rows, const TextOf& text) {
  std::vector<FacetLine> groups;
  for (const Row* row : rows) {
    const std::string label = text(*row);
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&label](const FacetLine& group) { return group.label == label; });
    if (found == groups.end()) found = groups.insert(groups.end(), FacetLine{label, {}});
    found->rows.push_back(row);
  }
  return groups;
}

std::vector<FacetLine> by_name(const std::vector<Row>& rows) {
  std::vector<const Row*> all;
  for (const Row& row : rows) all.push_back(&row);
  return grouped(all, [](const Row& row) { return row.name; });
}

// Takes the first axis key that differs out of `keys`; empty if there is none.
std::string take_axis_key(const std::vector<const Row*>& rows, Keys& keys) {
  for (const char* key : kAxisKeys) {
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end() || !is_numeric(rows, key)) continue;
    keys.erase(found);
    return key;
  }
  return "";
}

// No more lines in a plot than have colours.
void add_split(std::vector<Facet>& facets, const Facet& facet) {
  for (size_t begin = 0; begin < facet.lines.size(); begin += kPlotColours) {
    const size_t end = std::min(begin + kPlotColours, facet.lines.size());
    Facet part{facet.title, facet.x_key, {}};
    part.lines.assign(facet.lines.begin() + static_cast<std::ptrdiff_t>(begin),
                      facet.lines.begin() + static_cast<std::ptrdiff_t>(end));
    if (facet.lines.size() > kPlotColours) {
      part.title += " (" + std::to_string(begin / kPlotColours + 1) + " of " +
                    std::to_string((facet.lines.size() + kPlotColours - 1) / kPlotColours) + ")";
    }
    facets.push_back(std::move(part));
  }
}

// One plot for each combination of `plot_keys`, in it one line for each of `line_keys`.
void add_facets(std::vector<Facet>& facets, const FacetLine& named, const std::string& x_key,
                const Keys& plot_keys, const Keys& line_keys) {
  for (const FacetLine& plot :
       grouped(named.rows, [&](const Row& row) { return params_text(row.params, plot_keys); })) {
    Facet facet{joined(named.label, plot.label), x_key, {}};
    facet.lines = grouped(plot.rows, [&](const Row& row) {
      return joined(row.document, params_text(row.params, line_keys));
    });
    add_split(facets, facet);
  }
}

}  // namespace

std::vector<Row> rows_of(const std::vector<Json>& documents,
                         const std::vector<std::string>& labels) {
  std::vector<Row> rows;
  for (size_t i = 0; i < documents.size(); ++i) {
    for (const Json& result : documents[i]["results"]) {
      rows.push_back({documents.size() > 1 ? labels[i] : "", string_or(result, "name", ""),
                      at_or_null(result, "params"), samples_of(result), result});
    }
  }
  return rows;
}

std::vector<std::string> varying_params(const std::vector<Row>& rows) {
  std::vector<const Row*> all;
  for (const Row& row : rows) all.push_back(&row);
  return varying(all);
}

std::string row_text(const Row& row, const std::vector<std::string>& varying) {
  return joined(row.document, joined(row.name, params_text(row.params, varying)));
}

std::vector<Facet> facets_over_param(const std::vector<Row>& rows) {
  std::vector<Facet> facets;
  for (const FacetLine& named : by_name(rows)) {
    Keys keys = varying(named.rows);
    const std::string x_key = take_axis_key(named.rows, keys);
    if (x_key.empty()) continue;
    const std::string line_key = take_axis_key(named.rows, keys);
    Keys line_keys;
    if (!line_key.empty()) {
      line_keys = {line_key};
    } else if (!keys.empty()) {
      line_keys = {keys.front()};
      keys.erase(keys.begin());
    }
    add_facets(facets, named, x_key, keys, line_keys);
  }
  return facets;
}

std::vector<Facet> facets_of_single_rows(const std::vector<Row>& rows) {
  std::vector<Facet> facets;
  for (const FacetLine& named : by_name(rows)) {
    Keys keys = varying(named.rows);
    Keys line_keys = keys;
    Keys plot_keys;
    if (named.rows.size() > kPlotColours) {  // one plot for each value of the axis
      const std::string key = take_axis_key(named.rows, keys);
      if (!key.empty()) plot_keys = {key};
      line_keys = keys;
    }
    add_facets(facets, named, "", plot_keys, line_keys);
  }
  return facets;
}

}  // namespace zoffload::bench
