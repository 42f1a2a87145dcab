#include "core/plan/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/check.h"

namespace zoffload {
namespace {

struct DottedKey {
  explicit DottedKey(std::string_view key) {
    const size_t dot = key.rfind('.');
    last = key.substr(dot + 1);  // npos + 1 is 0
    parent = key.substr(0, key.size() - last.size());
  }
  std::string_view parent;
  std::string_view last;
};

// The parents' distance only decides between equals.
size_t key_distance(const DottedKey& a, const DottedKey& b) {
  constexpr size_t kWeight = 1000;
  const size_t parents = std::min(edit_distance(a.parent, b.parent), kWeight - 1);
  return edit_distance(a.last, b.last) * kWeight + parents;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  // row[j] is the distance from the letters of `a` seen so far to the first j letters of `b`.
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view nearest_key(std::string_view key, std::span<const std::string_view> candidates) {
  ZO_CHECK(!candidates.empty());
  const DottedKey wanted(key);
  return *std::min_element(candidates.begin(), candidates.end(), [&](auto a, auto b) {
    return key_distance(wanted, DottedKey(a)) < key_distance(wanted, DottedKey(b));
  });
}

}  // namespace zoffload
