#include "bindings/state_formats.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/errors.h"
#include "core/base/state_format.h"
#include "core/plan/plan.h"
#include "optim/optimizers.h"

namespace nb = nanobind;

namespace zoffload {

namespace {

uint64_t state_bytes_of(const std::string& dtype, const std::string& format,
                        const std::string& optimizer, uint64_t numel) {
  const auto known = state_format_named(format);
  raise_if_error(known.status());
  const auto made = make_optimizer(optimizer);
  raise_if_error(made.status());
  BucketLayout bucket;
  bucket.dtype = dtype == "fp32" ? DType::kFloat32 : DType::kBFloat16;
  bucket.format = *known;
  bucket.moments = (*made)->moments();
  return state_bytes(bucket,
                     known->moments == MomentFormat::kInt8 ? round_up(numel, kMomentBlock) : numel);
}

}  // namespace

void bind_state_formats(nb::module_& module) {
  using namespace nb::literals;
  module.def("state_format_names", [] { return state_format_names(); });
  module.def("state_bytes", &state_bytes_of, "dtype"_a, "format"_a, "optimizer"_a, "numel"_a,
             "What a trained parameter of so many elements needs beside itself.");
}

}  // namespace zoffload
