// The known key nearest to a misspelt one, for error messages.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace zoffload {

// The letters to insert, delete or replace to turn `a` into `b` (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `key`; the first of equals. Keys are dotted paths. The distance of their
// last parts counts most, so that a right name in the wrong place is found; among equals in that,
// the one with the nearest parent wins. The result lives as long as the
// candidates. REQUIRES: candidates not empty.
std::string_view nearest_key(std::string_view key, std::span<const std::string_view> candidates);

}  // namespace zoffload
