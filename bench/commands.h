// One factory for each command; commands.cc has the table.
#pragma once

#include <memory>

#include "bench/command.h"

namespace zoffload::bench {

std::unique_ptr<Command> make_probe_command();
std::unique_ptr<Command> make_io_command();
std::unique_ptr<Command> make_tune_command();
std::unique_ptr<Command> make_link_command();
std::unique_ptr<Command> make_adam_command();
std::unique_ptr<Command> make_collective_command();
std::unique_ptr<Command> make_pipeline_command();
std::unique_ptr<Command> make_profile_command();
std::unique_ptr<Command> make_compare_command();
std::unique_ptr<Command> make_report_command();
std::unique_ptr<Command> make_clean_command();

}  // namespace zoffload::bench
