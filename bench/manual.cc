#include "bench/manual.h"

#include <CLI/CLI.hpp>
#include <sstream>

namespace zoffload::bench {
namespace {

constexpr const char* kUnits =
    "Sizes: KiB MiB GiB TiB count in 1024s, kB MB GB TB in 1000s; bare K M G T in 1024s.\n"
    "Times: ms, s, m; a bare number is seconds. Rates: a size per second, 3GiB/s.\n"
    "Comma lists are swept: --block-size 256KiB,1MiB --queue-depth 8,32 measures four times.\n"
    "Results go to stdout, everything else to stderr.\n";

constexpr const char* kExitCodes =
    "0 done; 1 a threshold failed; 2 usage or config error; 3 this machine cannot do it;\n"
    "4 I/O error or no space; 5 verification failed; 6 a budget of time or writes was reached;\n"
    "130, 143 interrupted by SIGINT, SIGTERM, after printing what was measured.\n";

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string indent(const std::string& text) {
  std::string indented;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    indented += line.empty() ? "\n" : "  " + line + "\n";
  }
  return indented;
}

// All long and short names of an option, with dashes.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// Roff reads backslashes, and dots and quotes at the beginning of a line, as its own.
std::string roff(const std::string& text) {
  std::string escaped;
  bool line_start = true;
  for (char c : text) {
    if (line_start && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
    line_start = c == '\n';
  }
  return escaped;
}

std::string roff_options(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    std::string names;
    for (const std::string& name : names_of(*option)) names += (names.empty() ? "" : ", ") + name;
    text += ".TP\n\\fB" + roff(names) + "\\fR";
    const bool takes_value = option->get_items_expected_max() > 0;
    if (takes_value) text += " \\fI" + roff(option->get_type_name()) + "\\fR";
    text += "\n" + roff(option->get_description());
    text += "\n";
  }
  return text;
}

std::string roff_literal(const std::string& text) { return ".nf\n" + roff(text) + ".fi\n"; }

}  // namespace

std::string help_text(const CLI::App& app, const std::string& examples) {
  std::string text = app.help(app.get_parent() != nullptr ? app.get_parent()->get_name() : "");
  while (text.ends_with("\n\n")) text.pop_back();
  if (examples.empty()) {
    text += "\nUnits:\n" + indent(kUnits) + "\nExit codes:\n" + indent(kExitCodes) +
            "\nEach command has its own --help, with examples.\n";
    return text;
  }
  text += "\nUnits:\n" + indent(kUnits) + "\nExamples:\n" + indent(examples);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

std::string manual_page(const CLI::App& app,
                        const std::vector<std::unique_ptr<Command>>& commands) {
  const std::string name = roff(app.get_name());
  std::string text = ".TH ZOFFLOAD-BENCH 1\n.SH NAME\n" + name + " \\- " +
                     roff(app.get_description()) + "\n.SH SYNOPSIS\n.B " + name +
                     "\n.I command\n[\\fIflags\\fR]\n.SH OPTIONS\n" + roff_options(app);
  for (const auto& command : commands) {
    const CLI::App& sub = *app.get_subcommand(command->name());
    text += ".SH COMMAND " + roff(sub.get_name()) + "\n" + roff(sub.get_description()) + "\n" +
            roff_options(sub) + ".PP\nExamples:\n" + roff_literal(command->examples());
  }
  return text + ".SH UNITS\n" + roff_literal(kUnits) + ".SH EXIT STATUS\n" +
         roff_literal(kExitCodes);
}

std::string bash_completion(const CLI::App& app) {
  std::string names;
  std::string cases;
  for (const CLI::App* sub : subcommands(app)) {
    names += sub->get_name() + " ";
    cases += "    " + sub->get_name() + ") words=\"";
    for (const CLI::Option* option : sub->get_options()) {
      for (const std::string& name : option->get_lnames()) cases += "--" + name + " ";
    }
    cases += "\" ;;\n";
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names += "--" + name + " ";
  }
  // After a flag that takes a file or a folder, and for words that are no flags: files.
  return "_zoffload_bench() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} words\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases + "    *) words=\"" + names +
         "\" ;;\n"
         "  esac\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    words=\"" +
         names +
         "\"\n"
         "  fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
         "}\n"
         "complete -o default -F _zoffload_bench " +
         app.get_name() + "\n";
}

zoffload::Result<std::string> parse_shell(std::string_view name) {
  if (name == "bash") return std::string(name);
  return Status(Code::kInvalidArgument, "'" + std::string(name) + "' is not bash");
}

}  // namespace zoffload::bench
