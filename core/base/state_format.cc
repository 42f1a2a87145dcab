#include "core/base/state_format.h"

#include "core/base/check.h"

namespace zoffload {
namespace {

struct Row {
  std::string_view name;
  StateFormat format;
};

constexpr Row kFormats[] = {
    {"fp32", {MasterFormat::kFloat32, MomentFormat::kFloat32}},
    {"split", {MasterFormat::kSplit, MomentFormat::kFloat32}},
    {"bf16", {MasterFormat::kFloat32, MomentFormat::kBFloat16}},
    {"split+bf16", {MasterFormat::kSplit, MomentFormat::kBFloat16}},
    {"int8", {MasterFormat::kFloat32, MomentFormat::kInt8}},
    {"split+int8", {MasterFormat::kSplit, MomentFormat::kInt8}},
};

}  // namespace

uint64_t moment_bytes(MomentFormat format, uint64_t numel) {
  switch (format) {
    case MomentFormat::kFloat32: return numel * 4;
    case MomentFormat::kBFloat16: return numel * 2;
    case MomentFormat::kInt8: break;
  }
  ZO_CHECK(numel % kMomentBlock == 0);
  return numel + numel / kMomentBlock * sizeof(float);
}

std::vector<std::string_view> state_format_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kFormats) names.push_back(row.name);
  return names;
}

std::string_view state_format_name(StateFormat format) {
  for (const Row& row : kFormats) {
    if (row.format == format) return row.name;
  }
  return "";
}

Result<StateFormat> state_format_named(std::string_view name) {
  std::string known;
  for (const Row& row : kFormats) {
    if (row.name == name) return row.format;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return Status(Code::kInvalidArgument,
                "state format '" + std::string(name) + "' is unknown; known are " + known);
}

}  // namespace zoffload
