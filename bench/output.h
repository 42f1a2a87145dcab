// A document in the three forms of --output, and the way to where it is wanted.
#pragma once

#include <string>

#include "bench/result.h"
#include "core/base/status.h"

namespace zoffload::bench {

// The parameters that all results share, then a line for each with those in which they differ.
std::string print_table(const Document& document);
std::string print_csv(const Document& document);   // RFC 4180; a column for each parameter
std::string print_json(const Document& document);  // indented; bytes that are no UTF-8 are replaced

// Writes all of `text` to `file`, or to stdout where it is empty. A reader that has gone away is no
// error.
Status write_text(const std::string& text, const std::string& file);

// Whether `file` could be written, without touching it: asked before hours of measuring.
Status check_writable(const std::string& file);

}  // namespace zoffload::bench
