// SIGINT and SIGTERM as a flag that a running command looks at. A second signal ends the program at
// once, as if it had no handler.
#pragma once

namespace zoffload::bench {

// Installs the handlers, also where they are ignored, as in a shell's background jobs. SIGPIPE is
// ignored: a closed pipe is an error of the write.
void catch_signals();

int caught_signal();  // SIGINT, SIGTERM, or 0. From any thread

}  // namespace zoffload::bench
