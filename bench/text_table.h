// A table of text for a terminal: columns as wide as their widest cell, two blanks between them.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace zoffload::bench {

// The first row has the titles. The columns in `right` stand at their right edge. REQUIRES: rows of
// equal size, at least one.
std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       const std::set<size_t>& right);

}  // namespace zoffload::bench
