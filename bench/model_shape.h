// What `pipeline` trains: the names and sizes of a model's parameters, made up from a number or
// read from a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/plan/placement.h"

namespace zoffload::bench {

struct ModelShape {
  std::vector<std::pair<std::string, uint64_t>> params;  // name, elements; none is 0
  uint64_t numel() const;
};

// Parameters of 16Mi elements; the last one takes the rest.
ModelShape model_of(uint64_t numel);

// A JSON file, either {"params": [["name", [2, 3]], ...]} or the figures of a transformer:
// {"layers": 12, "width": 768, "vocabulary": 50257}, the last one may be left out. Errors name the
// file and the key.
zoffload::Result<ModelShape> read_model(const std::string& file);
zoffload::Result<ModelShape> parse_model(std::string_view json_text);

// "64Mi" (Ki, Mi, Gi: 1024s), "350M", "7B" (K, M, G or B, T: thousands), "1.5B", "4096". Above 0.
zoffload::Result<uint64_t> parse_numel(std::string_view text);
std::string format_numel(uint64_t numel);  // "64Mi", "7B", "4097": as parse_numel() takes it

// "nvme", "host" or "hbm"; or shares that add up to 1: "nvme:0.6,host:0.4".
zoffload::Result<Placement> parse_placement(std::string_view text);
std::string format_placement(const Placement& placement);

}  // namespace zoffload::bench
