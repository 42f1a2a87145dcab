#include "bindings/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace zoffload {

namespace {

const char* class_name(Code code) {
  switch (code) {
    case Code::kOk: break;
    case Code::kInvalidArgument: return "InvalidArgument";
    case Code::kOutOfSpace: return "OutOfSpace";
    case Code::kOutOfMemory: return "OutOfMemory";
    case Code::kIoError: return "IoError";
    case Code::kCorruption: return "Corruption";
    case Code::kDeviceError: return "DeviceError";
    case Code::kCommError: return "CommError";
    case Code::kTimeout: return "Timeout";
    case Code::kUnsupported: return "Unsupported";
  }
  return "Error";
}

}  // namespace

void raise_if_error(const Status& status) {
  if (status.ok()) return;
  const nb::object type = nb::module_::import_("zoffload.errors").attr(class_name(status.code()));
  // Paths need not be UTF-8.
  const std::string& message = status.message();
  const nb::object text = nb::steal(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  const nb::object error = type(text);
  if (status.error_number() != 0) error.attr("errno") = status.error_number();
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace zoffload
