// How the program ends. The numbers are a contract with scripts.
#pragma once

#include "core/base/status.h"

namespace zoffload::bench {

enum class ExitCode : int {
  kDone = 0,
  kThresholdFailed = 1,     // --min-read 3GiB/s, compare --fail-over
  kUsage = 2,               // of the command line or a file that it names
  kUnable = 3,              // this machine cannot do what was asked
  kIoError = 4,             // or no space
  kVerificationFailed = 5,  // the bytes read are not the bytes written
  kPartial = 6,             // the budget of time or of writes was reached
  kInterrupted = 130,       // SIGINT, after printing what was measured
  kTerminated = 143,        // SIGTERM, likewise
};

// The code of an error that ended a command.
ExitCode exit_code_of(const Status& error);

}  // namespace zoffload::bench
