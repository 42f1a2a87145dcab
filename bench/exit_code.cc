#include "bench/exit_code.h"

namespace zoffload::bench {

ExitCode exit_code_of(const Status& error) {
  switch (error.code()) {
    case Code::kOk: return ExitCode::kDone;
    case Code::kInvalidArgument: return ExitCode::kUsage;
    case Code::kOutOfMemory:
    case Code::kDeviceError:
    case Code::kCommError:
    case Code::kUnsupported: return ExitCode::kUnable;
    case Code::kOutOfSpace:
    case Code::kIoError:
    case Code::kTimeout: return ExitCode::kIoError;
    case Code::kCorruption: return ExitCode::kVerificationFailed;
  }
  return ExitCode::kIoError;
}

}  // namespace zoffload::bench
