// File I/O as Python sees it: addresses and numbers. zoffload.aio gives them their shape.
#pragma once

#include <nanobind/nanobind.h>

namespace zoffload {

void bind_aio(nanobind::module_& module);

}  // namespace zoffload
