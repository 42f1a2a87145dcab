// Values of a document as people read them: the unit, which the document has in the key, moves to
// the value. "block_size_bytes": 1048576 is "block size 1 MiB".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/result.h"

namespace zoffload::bench {

std::string key_text(const std::string& key);  // without its unit and underscores
std::string value_text(const std::string& key, const Json& value);

// "1 MiB", "1.5 MiB", "640 B": exact where it can be short.
std::string short_bytes(double bytes);
std::string nanoseconds_text(double ns);  // "850 ns", "85 us", "1.5 ms", "2.1 s"

// "block size 1 MiB, queue depth 8": all parameters, or those in `keys`.
std::string params_text(const Json& params);
std::string params_text(const Json& params, const std::vector<std::string>& keys);

// The keys whose values are not the same in all of `params`, in the order of their appearance.
std::vector<std::string> differing_keys(const std::vector<const Json*>& params);

// The leaves of nested objects and lists of objects: "drives / nvme0n1 / model". Lists of plain
// values are one leaf; what is empty is left out.
using Leaves = std::vector<std::pair<std::string, std::string>>;
Leaves leaves_of(const Json& json);

}  // namespace zoffload::bench
