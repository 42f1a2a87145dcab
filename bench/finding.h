// One line of what `probe` says: what was looked at, what is so, and the remedy if it could be
// better. The words are those of `python -m zoffload.doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/result.h"

namespace zoffload::bench {

enum class Level : uint8_t {
  kOk,
  kWarn,  // works, but slower or less
  kFail,  // does not work
};

const char* level_name(Level level);  // "ok", "warn", "fail"

struct Finding {
  Level level = Level::kOk;
  std::string what;    // "io_uring", "drive"
  std::string says;    // "is denied by seccomp (EPERM): libaio does the I/O"
  std::string remedy;  // empty: none is needed, or none is known

  Json to_json() const;
  std::string to_string() const;  // "warn  io_uring    is denied ... -> run the container ..."
};

// The sentences of aio/probe.h end with the remedy: "it is so; do that" -> {"it is so", "do that"}.
std::pair<std::string, std::string> split_remedy(const std::string& sentence);

}  // namespace zoffload::bench
