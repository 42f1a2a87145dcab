// Reads what an earlier run wrote with --out or --output json, for `compare` and `report`. What is
// checked here need not be checked again by them: the schema's name, and the types of the fields
// that every result has or may have. Everything else in a document may be missing or strange.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/result.h"
#include "bench/samples.h"
#include "core/base/status.h"

namespace zoffload::bench {

// kInvalidArgument names the file, and the place in it.
zoffload::Result<Json> read_document(const std::string& path);
// The same from text; `name` stands for the file in errors.
zoffload::Result<Json> parse_document(std::string_view text, const std::string& name);

// The bandwidth of each repeat. REQUIRES: `result` is one of a document that was read here, or
// comes from Result::to_json(); so below.
Samples samples_of(const Json& result);

// Where `json` is an object with that key, its value; else null (a shared one, of type null).
const Json& at_or_null(const Json& json, const std::string& key);
std::string string_or(const Json& json, const std::string& key, const std::string& otherwise);

}  // namespace zoffload::bench
