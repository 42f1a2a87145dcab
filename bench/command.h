// One command of the program. A new one is a file cmd_<name>.cc and a row in commands.cc.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/context.h"
#include "bench/exit_code.h"
#include "bench/flag.h"
#include "core/base/status.h"

namespace zoffload::bench {

// What a command's own flags name.
struct NamedFiles {
  std::vector<std::string> read;                             // empty ones are not given
  std::vector<std::pair<const char*, std::string>> written;  // flag, file
};

class Command {
 public:
  virtual ~Command() = default;
  virtual const char* name() const = 0;
  virtual const char* summary() const = 0;   // one line
  virtual const char* examples() const = 0;  // three, a line of what and a line of how each

  // Adds its flags to `app`, to be stored in `options` and in the command itself. The groups that
  // several commands share are in add_options.h; those of the output are added for it.
  virtual void add_options(CLI::App& app, Options& options) = 0;

  // Does the work; appends to context.document() as soon as a result is complete, so that a signal
  // loses nothing. An error ends the program with its exit_code_of(). After a signal the program
  // ends with the signal's code, whatever is returned.
  virtual zoffload::Result<ExitCode> run(Context& context) = 0;

  // What --output table prints after run(); by default a line for each result (output.h). JSON is
  // never the command's affair. Nothing, if nothing is to be printed.
  virtual std::string print_table(const Document& document) const;

  // What --output csv prints; by default a line for each result (output.h).
  virtual std::string print_csv(const Document& document) const;

  // Files that no output may replace. Asked for once the flags are read.
  virtual NamedFiles files() const { return {}; }

  // Whether run() itself writes the page that --html names; else the program draws the document.
  virtual bool writes_html() const { return false; }
};

std::vector<std::unique_ptr<Command>> make_commands();  // in the order of --help

}  // namespace zoffload::bench
