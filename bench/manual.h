// The texts that are made from the table of flags itself: help, a manual page, a completion script.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/command.h"
#include "core/base/status.h"

namespace zoffload::bench {

// What --help prints. `examples` is empty for the program itself.
std::string help_text(const CLI::App& app, const std::string& examples);

// In roff, for `man -l`.
std::string manual_page(const CLI::App& app, const std::vector<std::unique_ptr<Command>>& commands);

std::string bash_completion(const CLI::App& app);  // for `source`, or bash-completion's folder
zoffload::Result<std::string> parse_shell(std::string_view name);

}  // namespace zoffload::bench
