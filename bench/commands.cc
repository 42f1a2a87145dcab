#include "bench/commands.h"

#include "bench/output.h"

namespace zoffload::bench {

std::vector<std::unique_ptr<Command>> make_commands() {
  using Make = std::unique_ptr<Command> (*)();
  constexpr Make kTable[] = {
      make_probe_command,   make_io_command,         make_tune_command,     make_link_command,
      make_adam_command,    make_collective_command, make_pipeline_command, make_profile_command,
      make_compare_command, make_report_command,     make_clean_command,
  };
  std::vector<std::unique_ptr<Command>> commands;
  for (const Make make : kTable) commands.push_back(make());
  return commands;
}

std::string Command::print_table(const Document& document) const {
  return bench::print_table(document);
}

std::string Command::print_csv(const Document& document) const {
  return bench::print_csv(document);
}

}  // namespace zoffload::bench
