// How the optimizer's state of a bucket is stored, and which of it an optimizer keeps.
//
// clang-format off
//   name         master     moments                       bytes per parameter of Adam
//   fp32         fp32       fp32                          12
//   split        low half   fp32                          10, lossless
//   bf16         fp32       bf16, rounded stochastically  8
//   split+bf16   low half   bf16                          6
//   int8         fp32       int8, a scale for each block  6.06
//   split+int8   low half   int8                          4.06
// clang-format on
//
// A split master needs 16-bit weights to be the other half. Weights in fp32 are their own master,
// so that half of a format has no effect on them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace zoffload {

enum class MasterFormat : uint8_t { kFloat32, kSplit };
enum class MomentFormat : uint8_t { kFloat32, kBFloat16, kInt8 };

struct StateFormat {
  MasterFormat master = MasterFormat::kFloat32;
  MomentFormat moments = MomentFormat::kFloat32;
  friend bool operator==(const StateFormat&, const StateFormat&) = default;
};

// Which moments an optimizer keeps. SGD's momentum and Lion's are exp_avg, Adagrad's sum of squares
// is exp_avg_sq.
struct MomentSet {
  bool exp_avg = true;
  bool exp_avg_sq = true;
  friend bool operator==(const MomentSet&, const MomentSet&) = default;
};

// Elements of a parameter that share one scale in int8. Parameters start at multiples of it.
inline constexpr uint64_t kMomentBlock = 128;

// The bytes of one moment of `numel` elements; in int8 the codes, then the scales.
// REQUIRES: in int8, numel is a multiple of kMomentBlock.
uint64_t moment_bytes(MomentFormat format, uint64_t numel);

std::vector<std::string_view> state_format_names();
std::string_view state_format_name(StateFormat format);
// kInvalidArgument, with the names that exist, for any other.
Result<StateFormat> state_format_named(std::string_view name);

}  // namespace zoffload
