// A document in the three forms of --output, and the way to where it is wanted.
#pragma once

#include <string>
#include <vector>

#include "bench/result.h"
#include "core/base/status.h"

namespace zoffload::bench {

// The parameters that all results share, then a line for each with those in which they differ.
std::string print_table(const Document& document);
std::string print_csv(const Document& document);   // a column for each parameter and detail
std::string print_json(const Document& document);  // indented; bytes that are no UTF-8 are replaced

// RFC 4180.
std::string csv_line(const std::vector<std::string>& fields);

// Writes all of `text` to `file`, or to stdout where it is empty. A reader that has gone away is no
// error.
Status write_text(const std::string& text, const std::string& file);

// All of `file`. kInvalidArgument: it cannot be read, or is a folder.
zoffload::Result<std::string> read_text(const std::string& file);

// Whether `file` could be written, without touching it: asked before hours of measuring.
Status check_writable(const std::string& file);

}  // namespace zoffload::bench
