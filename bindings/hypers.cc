#include "bindings/hypers.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "bindings/errors.h"

namespace nb = nanobind;

namespace zoffload {
namespace {

struct Field {
  const char* name;
  double Hyper::*value;
};

constexpr Field kFields[] = {
    {"lr", &Hyper::lr},
    {"beta1", &Hyper::beta1},
    {"beta2", &Hyper::beta2},
    {"eps", &Hyper::eps},
    {"weight_decay", &Hyper::weight_decay},
    {"momentum", &Hyper::momentum},
    {"dampening", &Hyper::dampening},
    {"lr_decay", &Hyper::lr_decay},
};

}  // namespace

Hyper hyper_from(const nb::dict& group) {
  Hyper hyper;
  for (const auto [key, value] : group) {
    const auto name = nb::cast<std::string>(key);
    const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                     [&](const Field& row) { return name == row.name; });
    if (field != std::end(kFields)) {
      hyper.*(field->value) = nb::cast<double>(value);
    } else if (name == "nesterov") {
      hyper.nesterov = nb::cast<bool>(value);
    } else {
      raise_if_error(Status(Code::kInvalidArgument, "step: there is no setting '" + name + "'"));
    }
  }
  return hyper;
}

}  // namespace zoffload
