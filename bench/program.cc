#include "bench/program.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "bench/add_options.h"
#include "bench/command.h"
#include "bench/host_facts.h"
#include "bench/html_report.h"
#include "bench/interrupt.h"
#include "bench/manual.h"
#include "bench/output.h"
#include "bench/progress.h"
#include "bench/version.h"
#include "core/plan/nearest.h"

namespace zoffload::bench {
namespace {

constexpr const char* kProgram = "zoffload-bench";
constexpr const char* kAbout =
    "Measures what offloaded training depends on: drives, links, memory, update kernels.";

int code(ExitCode exit_code) { return static_cast<int>(exit_code); }

int fail(const std::string& sentence, ExitCode exit_code) {
  std::fprintf(stderr, "%s: %s\n", kProgram, sentence.c_str());
  return code(exit_code);
}

std::string now_iso8601() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S%z", &local);
  std::string stamp = text;  // ends in +hhmm; ISO 8601 in its extended form wants +hh:mm
  return stamp.insert(stamp.size() - 2, ":");
}

// Everything that the command line is read into.
struct CommandLine {
  CLI::App app{kAbout, kProgram};
  Options options;
  std::vector<std::unique_ptr<Command>> commands = make_commands();
  std::vector<CLI::App*> command_apps;  // by command
  std::string completion;
  bool man = false;
  bool version = false;

  CommandLine();
  Command* chosen() const;  // null: none
  const CLI::App& chosen_app() const;
};

CommandLine::CommandLine() {
  app.set_help_flag("-h,--help", "show this text");
  app.require_subcommand(0, 1);
  add_flag(app, "--version", version, "show the version, commit and build");
  add_parsed(app, "--completion", completion, parse_shell, "bash", "",
             "print a completion script for this shell");
  add_flag(app, "--man", man, "print the manual page (roff)");
  for (const auto& command : commands) {
    CLI::App* const sub = app.add_subcommand(command->name(), command->summary());
    sub->set_help_flag("-h,--help", "show this text");
    command->add_options(*sub, options);
    add_output_options(*sub, options);
    command_apps.push_back(sub);
  }
}

Command* CommandLine::chosen() const {
  for (size_t i = 0; i < commands.size(); ++i) {
    if (command_apps[i]->parsed()) return commands[i].get();
  }
  return nullptr;
}

const CLI::App& CommandLine::chosen_app() const {
  for (const CLI::App* command_app : command_apps) {
    if (command_app->parsed()) return *command_app;
  }
  return app;
}

// "; did you mean --block-size?" for an argument that is nearly a flag or a command.
std::string did_you_mean(const CommandLine& line, const std::string& argument) {
  const CLI::App& app = line.chosen_app();
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  if (&app == &line.app) {
    for (const auto& command : line.commands) names.push_back(command->name());
  }
  const std::string flag = argument.substr(0, argument.find('='));
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const std::string_view nearest = nearest_key(flag, candidates);
  if (edit_distance(flag, nearest) > std::max<size_t>(flag.size() / 3, 1)) return "";
  return "; did you mean " + std::string(nearest) + "?";
}

int usage_error(const CommandLine& line, const std::string& what) {
  const CLI::App& app = line.chosen_app();
  const std::string name = &app == &line.app ? kProgram : kProgram + (" " + app.get_name());
  std::string sentence = what;
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  std::fprintf(stderr, "%s: %s (see %s --help)\n", name.c_str(), sentence.c_str(), name.c_str());
  return code(ExitCode::kUsage);
}

// Reads the arguments into `line`. Returns true if that was all; then `exit_code` is set.
bool parse(CommandLine& line, const std::vector<std::string>& arguments, int& exit_code) {
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  try {
    line.app.parse(static_cast<int>(pointers.size()), pointers.data());
    return false;
  } catch (const CLI::CallForHelp&) {
    const Command* const command = line.chosen();
    const std::string text = help_text(line.chosen_app(), command ? command->examples() : "");
    exit_code = code(write_text(text, "").ok() ? ExitCode::kDone : ExitCode::kIoError);
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extras = line.app.remaining(true);
    const std::string first = extras.empty() ? "" : extras.front();
    const std::string word = first.starts_with("-") || line.chosen() ? "argument" : "command";
    exit_code = usage_error(line, "unknown " + word + " " + first + did_you_mean(line, first));
  } catch (const CLI::ParseError& error) {
    exit_code = usage_error(line, error.what());
  }
  return true;
}

int print_about(CommandLine& line) {
  std::string text;
  if (line.version) {
    text = std::string(kProgram) + " " + tool_version() + " (git " + tool_git() + ", " +
           tool_build() + ")\n";
  } else if (line.man) {
    text = manual_page(line.app, line.commands);
  } else {
    text = bash_completion(line.app);
  }
  return code(write_text(text, "").ok() ? ExitCode::kDone : ExitCode::kIoError);
}

Progress::Style progress_style(const Options& options) {
  if (options.quiet || !options.progress) return Progress::Style::kNone;
  return isatty(STDERR_FILENO) != 0 ? Progress::Style::kTerminal : Progress::Style::kLog;
}

// One file under two names; what is no file (/dev/null) has room for everybody.
bool is_same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(a, error)) return fs::equivalent(a, b, error) && fs::is_regular_file(a, error);
  const auto plain = [&error](const std::string& file) {
    return fs::weakly_canonical(fs::absolute(file, error), error);
  };
  return plain(a) == plain(b);
}

// Whether all outputs can be written, none to a file that another takes or that is read.
Status check_outputs(const Command& command, const Options& options) {
  NamedFiles files = command.files();
  files.read.push_back(options.config_file);
  files.written.emplace_back(options.out_flag, options.out_file);
  files.written.emplace_back("--html", options.html_file);
  std::vector<std::pair<const char*, std::string>> taken;
  for (const auto& [flag, file] : files.written) {
    if (file.empty()) continue;
    const std::string name = std::string(flag) + ": " + file;
    for (const std::string& input : files.read) {
      if (input.empty() || !is_same_file(file, input)) continue;
      return Status(Code::kInvalidArgument, name + " is one of the files to read");
    }
    for (const auto& [other_flag, other] : taken) {
      if (!is_same_file(file, other)) continue;
      return Status(Code::kInvalidArgument, name + " is the file of " + other_flag + " too");
    }
    ZO_TRY(check_writable(file).within(flag));
    taken.emplace_back(flag, file);
  }
  return Status();
}

// What --dry-run has to say, a line each.
std::string plan_text(const Document& document) {
  std::string text;
  for (const Json& line : document.summary["plan"]) text += line.get<std::string>() + "\n";
  return text;
}

Status print_document(const Command& command, const Options& options, const Document& document) {
  switch (options.format) {
    case Format::kJson: return write_text(print_json(document), options.out_file);
    case Format::kCsv: return write_text(command.print_csv(document), options.out_file);
    case Format::kTable: break;
  }
  if (document.summary.contains("plan")) {
    return write_text(plan_text(document), options.out_file);
  }
  return write_text(command.print_table(document), options.out_file);
}

int run_command(Command& command, const Options& options, std::vector<std::string> argv) {
  const Status writable = check_outputs(command, options);
  if (!writable.ok()) return fail(writable.message(), ExitCode::kUsage);
  Document document;
  document.tool = {{"version", tool_version()}, {"git", tool_git()}, {"build", tool_build()}};
  document.argv = std::move(argv);
  document.started = now_iso8601();
  document.label = options.label;
  document.summary["warnings"] = Json::array();
  if (options.dry_run) document.summary["dry_run"] = true;

  Progress progress(progress_style(options));
  Context context(options, document, progress);
  catch_signals();
  const zoffload::Result<ExitCode> ended = command.run(context);
  progress.end();

  const bool interrupted = context.stop() == Stop::kSignal;
  ExitCode exit_code = ended.ok() ? *ended : exit_code_of(ended.status());
  if (interrupted) {
    exit_code = exit_code_of(Stop::kSignal);
    document.summary["interrupted"] = true;
  } else if (!ended.ok()) {
    document.summary["error"] = ended.status().message();
    fail(ended.status().message(), exit_code);
  }
  if (!ended.ok() && !interrupted && document.results.empty()) return code(exit_code);
  if (document.host.empty()) document.host = host_facts(options.paths);
  const Status printed = print_document(command, options, document);
  if (!printed.ok()) return fail(printed.message(), ExitCode::kIoError);
  if (!options.html_file.empty() && !command.writes_html()) {
    const Status drawn = write_html(document.to_json(), options.html_file);
    if (!drawn.ok()) return fail("--html: " + drawn.message(), ExitCode::kIoError);
  }
  return code(exit_code);
}

int run_line(int argc, const char* const* argv) {
  CommandLine line;
  int exit_code = 0;
  if (parse(line, normalize_arguments(argc, argv), exit_code)) return exit_code;
  if (line.version || line.man || !line.completion.empty()) return print_about(line);
  Command* const command = line.chosen();
  if (command == nullptr) return usage_error(line, "a command is missing");
  return run_command(*command, line.options, std::vector<std::string>(argv, argv + argc));
}

}  // namespace

std::vector<std::string> normalize_arguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  for (size_t i = 1; i < arguments.size(); ++i) {
    std::string& argument = arguments[i];
    if (!argument.starts_with("--")) continue;
    const size_t end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
    const std::string name = argument.substr(0, end);
    if (name == "--io-parallel" || name == "--intra-op-parallelism") {
      argument.replace(0, end, "--workers");
    } else if (name == "--nvme-dir") {
      argument.replace(0, end, "--path");
    }
  }
  return arguments;
}

int run_program(int argc, const char* const* argv) {
  // Not one of our errors is an exception; those of the libraries end here.
  try {
    return run_line(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ExitCode::kUnable);
  } catch (const std::exception& error) {
    return fail(std::string("unexpected: ") + error.what(), ExitCode::kIoError);
  }
}

}  // namespace zoffload::bench
