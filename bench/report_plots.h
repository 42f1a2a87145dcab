// The plots of a report, each a section of HTML, empty where the results have nothing to show.
#pragma once

#include <string>
#include <vector>

#include "bench/facets.h"

namespace zoffload::bench {

// "<section>" with a heading and a line that says how to read it; empty if `body` is.
std::string section(const std::string& title, const std::string& how, const std::string& body);

std::string bandwidth_section(const std::vector<Row>& rows);  // over block size, depth, threads ...
std::string best_section(const std::vector<Row>& rows);       // read against write, by engine
std::string samples_section(const std::vector<Row>& rows);
std::string latency_section(const std::vector<Row>& rows);
std::string series_section(const std::vector<Row>& rows);
std::string bound_section(const std::vector<Row>& rows);  // updates against what memory allows
std::string stalls_section(const std::vector<Row>& rows);

}  // namespace zoffload::bench
