// A parameter group's settings as Python gives them: a dict of numbers by the names of Hyper's
// fields.
#pragma once

#include <nanobind/nanobind.h>

#include "core/ports/optimizer.h"

namespace zoffload {

// What the dict does not give keeps its default: the group's optimizer does not read it. An unknown
// name is an error.
Hyper hyper_from(const nanobind::dict& group);

}  // namespace zoffload
