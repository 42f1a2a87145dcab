// Which results belong into one plot, and what tells them apart there: of the parameters that
// differ, one becomes the axis, one the lines, and the rest make several plots.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/result.h"
#include "bench/samples.h"

namespace zoffload::bench {

// A result of one of the documents that a report shows together.
struct Row {
  std::string document;  // its label; empty when there is only one
  std::string name;
  Json params = Json::object();
  Samples bandwidth;
  Json result = Json::object();
};

// REQUIRES: the documents are ones that read_document() or Document::to_json() gave.
std::vector<Row> rows_of(const std::vector<Json>& documents,
                         const std::vector<std::string>& labels);

// The parameters whose values differ among the rows, in the order of their first appearance.
std::vector<std::string> varying_params(const std::vector<Row>& rows);

// What tells a row from the others: document, name and varying parameters, so far as they differ.
std::string row_text(const Row& row, const std::vector<std::string>& varying);

struct FacetLine {
  std::string label;
  std::vector<const Row*> rows;
};
struct Facet {
  std::string title;  // "read, engine io_uring"
  std::string x_key;  // a parameter of numbers; empty if none differs
  std::vector<FacetLine> lines;
};

// Plots over a parameter: block sizes before depths before threads. Rows point into `rows`.
std::vector<Facet> facets_over_param(const std::vector<Row>& rows);
// Plots in which every row is a line of its own, as few lines in one as tell a story.
std::vector<Facet> facets_of_single_rows(const std::vector<Row>& rows);

}  // namespace zoffload::bench
