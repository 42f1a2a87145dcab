#include "bench/model_shape.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/output.h"

namespace zoffload::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kParamNumel = uint64_t{16} << 20;
constexpr uint64_t kNumelMax = uint64_t{1} << 50;  // keeps every sum of bytes far from overflowing
constexpr uint64_t kFigureMax = 1 << 20;           // of layers, width, vocabulary and a dimension
constexpr size_t kParamsMax = 1 << 20;

struct Unit {
  std::string_view name;
  double scale;
};
constexpr Unit kNumelUnits[] = {{"", 1},        {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30},
                                {"Ti", 0x1p40}, {"K", 1e3},     {"k", 1e3},     {"M", 1e6},
                                {"G", 1e9},     {"B", 1e9},     {"T", 1e12}};

Status mistake(const std::string& text) { return Status(Code::kInvalidArgument, text); }

// A number that is not negative, and the text behind it.
bool split_number(std::string_view text, double& number, std::string_view& rest) {
  const bool digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (!digit || parsed.ec != std::errc()) return false;
  rest = std::string_view(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  return true;
}

zoffload::Result<uint64_t> figure(const json& model, const char* key, uint64_t min) {
  if (!model.contains(key) && min == 0) return uint64_t{0};
  if (!model.contains(key)) return mistake(std::string(key) + ": it is missing");
  const json& value = model.at(key);
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number >= min && number <= kFigureMax) return number;
  }
  return mistake(std::string(key) + " is " + value.dump() + "; it must be a whole number from " +
                 std::to_string(min) + " to " + std::to_string(kFigureMax));
}

// Blocks of attention and a four times wider perceptron, as GPT-2 has them.
zoffload::Result<ModelShape> transformer(const json& model) {
  for (const auto& [key, value] : model.items()) {
    if (key != "layers" && key != "width" && key != "vocabulary") {
      return mistake("key \"" + key +
                     "\" is not known; a model is {\"params\": [[name, [shape]], "
                     "...]} or {\"layers\", \"width\", \"vocabulary\"}");
    }
  }
  ZO_ASSIGN_OR_RETURN(const uint64_t layers, figure(model, "layers", 1));
  ZO_ASSIGN_OR_RETURN(const uint64_t width, figure(model, "width", 1));
  ZO_ASSIGN_OR_RETURN(const uint64_t vocabulary, figure(model, "vocabulary", 0));
  ModelShape shape;
  if (vocabulary > 0) shape.params.emplace_back("embedding", vocabulary * width);
  for (uint64_t layer = 0; layer < layers && shape.params.size() < kParamsMax; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    for (const auto& [part, numel] :
         std::array<std::pair<const char*, uint64_t>, 12>{{{"norm1.weight", width},
                                                           {"norm1.bias", width},
                                                           {"qkv.weight", 3 * width * width},
                                                           {"qkv.bias", 3 * width},
                                                           {"proj.weight", width * width},
                                                           {"proj.bias", width},
                                                           {"norm2.weight", width},
                                                           {"norm2.bias", width},
                                                           {"up.weight", 4 * width * width},
                                                           {"up.bias", 4 * width},
                                                           {"down.weight", 4 * width * width},
                                                           {"down.bias", width}}}) {
      shape.params.emplace_back(name + part, numel);
    }
  }
  return shape;
}

zoffload::Result<ModelShape> listed(const json& model) {
  const json& params = model.at("params");
  const Status form = mistake("params: it must be a list of [\"name\", [dimensions]]");
  if (model.size() != 1 || !params.is_array() || params.empty()) return form;
  ModelShape shape;
  for (const json& param : params) {
    if (!param.is_array() || param.size() != 2 || !param[0].is_string() || !param[1].is_array()) {
      return form;
    }
    const auto name = param[0].get<std::string>();
    uint64_t numel = 1;
    for (const json& dimension : param[1]) {
      const uint64_t length = dimension.is_number_unsigned() ? dimension.get<uint64_t>() : 0;
      if (length == 0 || length > kNumelMax / numel) {
        return mistake("params: the shape of \"" + name + "\" has a dimension " + dimension.dump());
      }
      numel *= length;
    }
    shape.params.emplace_back(name, numel);
  }
  return shape;
}

}  // namespace

uint64_t ModelShape::numel() const {
  uint64_t sum = 0;
  for (const auto& [name, numel] : params) sum += numel;
  return sum;
}

ModelShape model_of(uint64_t numel) {
  ModelShape shape;
  for (uint64_t begin = 0; begin < numel; begin += kParamNumel) {
    const std::string name = "param " + std::to_string(shape.params.size());
    shape.params.emplace_back(name, std::min(kParamNumel, numel - begin));
  }
  return shape;
}

zoffload::Result<ModelShape> parse_model(std::string_view json_text) {
  const json model = json::parse(json_text, nullptr, false);
  if (!model.is_object()) return mistake("it is not a JSON object");
  ZO_ASSIGN_OR_RETURN(ModelShape shape,
                      model.contains("params") ? listed(model) : transformer(model));
  uint64_t numel = 0;
  for (const auto& param : shape.params) numel += std::min(param.second, kNumelMax);
  if (numel > kNumelMax || shape.params.size() > kParamsMax) {
    return mistake("the model has too many parameters");
  }
  return shape;
}

zoffload::Result<ModelShape> read_model(const std::string& file) {
  const zoffload::Result<std::string> text = read_text(file);
  if (!text.ok()) return text.status().within("--model");
  zoffload::Result<ModelShape> shape = parse_model(*text);
  if (!shape.ok()) return shape.status().within("--model: " + file);
  return shape;
}

zoffload::Result<uint64_t> parse_numel(std::string_view text) {
  double number = 0;
  std::string_view rest;
  const bool split = split_number(text, number, rest);
  for (const Unit& unit : kNumelUnits) {
    if (!split || rest != unit.name) continue;
    const double numel = std::round(number * unit.scale);
    if (numel >= 1 && numel <= static_cast<double>(kNumelMax)) return static_cast<uint64_t>(numel);
  }
  return mistake("'" + std::string(text) +
                 "' is not a number of parameters such as 64Mi, 350M or "
                 "7B (Ki, Mi, Gi count in 1024s)");
}

std::string format_numel(uint64_t numel) {
  // The shortest form that is exact: 70B, which is 68359375Ki too.
  std::string shortest = std::to_string(numel);
  for (const Unit& unit : {Unit{"Gi", 0x1p30}, Unit{"Mi", 0x1p20}, Unit{"Ki", 0x1p10},
                           Unit{"B", 1e9}, Unit{"M", 1e6}, Unit{"K", 1e3}}) {
    const auto scale = static_cast<uint64_t>(unit.scale);
    if (numel < scale || numel % scale != 0) continue;
    const std::string text = std::to_string(numel / scale) + std::string(unit.name);
    if (text.size() < shortest.size()) shortest = text;
  }
  return shortest;
}

zoffload::Result<Placement> parse_placement(std::string_view text) {
  const Status bad = mistake("'" + std::string(text) +
                             "' is neither nvme, host or hbm nor shares "
                             "that add up to 1, such as nvme:0.6,host:0.4");
  Placement placement;
  const auto share_of = [&placement](std::string_view tier) -> double* {
    if (tier == "hbm") return &placement.hbm;
    if (tier == "host") return &placement.host;
    return tier == "nvme" ? &placement.nvme : nullptr;
  };
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    const size_t colon = entry.find(':');
    double* const share = share_of(entry.substr(0, colon));
    if (share == nullptr || *share != 0) return bad;
    double number = 1;
    std::string_view rest;
    if (colon != std::string_view::npos) {
      if (!split_number(entry.substr(colon + 1), number, rest) || !rest.empty()) return bad;
    }
    *share = number;
    begin = end + 1;
  }
  if (std::abs(placement.hbm + placement.host + placement.nvme - 1) > 1e-6) return bad;
  return placement;
}

std::string format_placement(const Placement& placement) {
  std::string text;
  for (const auto& [tier, share] : std::array<std::pair<const char*, double>, 3>{
           {{"hbm", placement.hbm}, {"host", placement.host}, {"nvme", placement.nvme}}}) {
    if (share == 1) return tier;
    if (share == 0) continue;
    char number[32];
    std::snprintf(number, sizeof number, ":%g", share);
    text += (text.empty() ? "" : ",") + std::string(tier) + number;
  }
  return text;
}

}  // namespace zoffload::bench
