// zoffload._core's share of the state formats: their names and what they cost.
#pragma once

#include <nanobind/nanobind.h>

namespace zoffload {

void bind_state_formats(nanobind::module_& module);

}  // namespace zoffload
