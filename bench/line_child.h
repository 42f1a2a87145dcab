// A program that answers lines: we write one, it writes one back. It ends when we do.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/run_jobs.h"
#include "core/base/status.h"

namespace zoffload::bench {

class LineChild {
 public:
  // `command[0]` is looked up in PATH. What the program writes to stderr is kept for errors.
  // kUnsupported where it cannot be started.
  static zoffload::Result<std::unique_ptr<LineChild>> start(
      const std::vector<std::string>& command);
  ~LineChild();  // ends it
  LineChild(const LineChild&) = delete;
  LineChild& operator=(const LineChild&) = delete;

  // False if the program has ended.
  bool send(const std::string& line);
  // Empty once `stopped`. kUnsupported, with the end of what it said, if the program ends instead.
  zoffload::Result<std::string> receive(const Stopped& stopped);

 private:
  LineChild() = default;
  std::string last_words() const;

  pid_t pid_ = -1;
  int socket_ = -1;
  int stderr_ = -1;  // a file in memory
  std::string received_;
};

}  // namespace zoffload::bench
