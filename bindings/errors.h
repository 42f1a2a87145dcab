// The Python boundary: the one place where a Status becomes an exception.
#pragma once

#include <string>

#include "core/base/status.h"

namespace zoffload {

// Raises the class of zoffload.errors that belongs to the code; returns when the status is ok.
// REQUIRES: the interpreter lock.
void raise_if_error(const Status& status);

}  // namespace zoffload
