// clean: stores that a killed job left behind, removed with the user's leave.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/commands.h"
#include "bench/flag.h"
#include "bench/text_table.h"
#include "core/base/format.h"
#include "tiers/store_folder.h"

namespace zoffload::bench {
namespace {

const char* state_name(FoundStore::State state) {
  switch (state) {
    case FoundStore::State::kLive: return "live";
    case FoundStore::State::kStale: return "stale";
    case FoundStore::State::kNoLock: return "no_lock";
    case FoundStore::State::kNoAccess: return "no_access";
  }
  return "no_access";
}

// What the user reads of a store that is kept, or will be removed.
std::string state_text(const FoundStore& store) {
  switch (store.state) {
    case FoundStore::State::kLive: return "kept: its owner is alive";
    case FoundStore::State::kNoLock: return "kept: it has no lock file";
    case FoundStore::State::kNoAccess: return "kept: this user may not look at its lock";
    case FoundStore::State::kStale: break;
  }
  if (store.foreign_files.empty()) return "its owner is dead";
  return "its owner is dead; the folder stays, it holds " + store.foreign_files.front() +
         (store.foreign_files.size() > 1 ? " and other files" : "") + " of someone else";
}

const char* removal_text(Removal removal) {
  switch (removal) {
    case Removal::kGone: return "removed";
    case Removal::kFolderKept:
      return "its swap files are removed; the folder stays for what it holds of someone else";
    case Removal::kNotStale: return "left alone: it changed in the meantime";
  }
  return "";
}

Result result_of(const FoundStore& store) {
  Result result;
  result.name = "store";
  result.params = {{"path", store.path}};
  result.details = {{"state", state_name(store.state)},
                    {"size_bytes", store.bytes},
                    {"foreign_files", store.foreign_files},
                    {"removed", false},
                    {"remark", state_text(store)}};
  return result;
}

std::string table_of(const std::vector<Result>& stores) {
  std::vector<std::vector<std::string>> rows = {{"store", "size", "what"}};
  for (const Result& store : stores) {
    rows.push_back({store.params["path"].get<std::string>(),
                    format_bytes(store.details["size_bytes"].get<uint64_t>()),
                    store.details["remark"].get<std::string>()});
  }
  return text_table(rows, {1});
}

bool can_ask() { return isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0; }

// Waits for a line on the terminal; a signal is a no.
bool ask(const std::string& question, const Context& context) {
  std::fputs((question + " [y/N] ").c_str(), stderr);
  std::string line;
  while (context.stop() == Stop::kNone) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 100) <= 0) continue;
    char byte = 0;
    if (read(STDIN_FILENO, &byte, 1) <= 0 || byte == '\n') {
      return line == "y" || line == "Y" || line == "yes";
    }
    line += byte;
  }
  std::fputs("\n", stderr);
  return false;
}

class CleanCommand : public Command {
 public:
  const char* name() const override { return "clean"; }
  const char* summary() const override { return "remove stores that killed jobs left behind"; }
  const char* examples() const override {
    return "List what killed jobs left on a drive, then ask\n"
           "  zoffload-bench clean /mnt/nvme\n"
           "Only list\n"
           "  zoffload-bench clean /mnt/nvme --dry-run\n"
           "Remove without asking, as a nightly job does\n"
           "  zoffload-bench clean /mnt/nvme0 /mnt/nvme1 --yes\n";
  }

  void add_options(CLI::App& app, Options& options) override {
    const auto take = [this](const std::vector<std::string>& folders) {
      for (const std::string& folder : folders) {
        if (folder.empty()) return Status(Code::kInvalidArgument, "an empty path");
      }
      folders_ = folders;
      return Status();
    };
    add_texts(app, "DIR", take, "nvme_paths: the folders that hold the stores")
        .type_name("FOLDER")
        .required();
    add_flag(app, "-y,--yes", yes_, "remove without asking");
    add_flag(app, "--dry-run", options.dry_run, "only list");
  }

  zoffload::Result<ExitCode> run(Context& context) override {
    Document& document = context.document();
    uint64_t stale_bytes = 0;
    size_t stale_count = 0;
    for (const std::string& folder : folders_) {
      ZO_ASSIGN_OR_RETURN(const std::vector<FoundStore> stores, find_stores(folder));
      for (const FoundStore& store : stores) {
        document.results.push_back(result_of(store));
        if (store.state != FoundStore::State::kStale) continue;
        stale_bytes += store.bytes;
        ++stale_count;
      }
    }
    const ExitCode code = stale_count == 0 ? nothing_to_do(context)
                                           : remove_with_leave(stale_count, stale_bytes, context);
    document.summary["stale_count"] = stale_count;
    document.summary["stale_bytes"] = stale_bytes;
    return code;
  }

  std::string print_table(const Document& document) const override {
    return document.results.empty() ? "" : table_of(document.results);
  }

 private:
  static ExitCode nothing_to_do(Context& context) {
    context.say("no store of a dead owner was found");
    return ExitCode::kDone;
  }

  ExitCode remove_with_leave(size_t count, uint64_t bytes, Context& context) const;
  static ExitCode remove_all(Context& context);

  std::vector<std::string> folders_;
  bool yes_ = false;
};

ExitCode CleanCommand::remove_with_leave(size_t count, uint64_t bytes, Context& context) const {
  const std::string what = std::to_string(count) + (count == 1 ? " store" : " stores") +
                           " of dead owners, " + format_bytes(bytes);
  if (context.options().dry_run) {
    context.say("would remove " + what);
    return ExitCode::kDone;
  }
  if (!yes_) {
    if (!can_ask()) {
      context.say("nothing was removed of " + what +
                  ": there is no terminal to ask on; --yes "
                  "removes without asking");
      return ExitCode::kDone;
    }
    std::fputs(table_of(context.document().results).c_str(), stderr);
    if (!ask("Remove " + what + "?", context)) {
      context.say("nothing was removed");
      return ExitCode::kDone;
    }
  }
  return remove_all(context);
}

ExitCode CleanCommand::remove_all(Context& context) {
  ExitCode code = ExitCode::kDone;
  uint64_t removed_bytes = 0;
  for (Result& store : context.document().results) {
    if (context.stop() != Stop::kNone) break;
    if (store.details["state"] != state_name(FoundStore::State::kStale)) continue;
    const auto removal = remove_stale_store(store.params["path"].get<std::string>());
    if (!removal.ok()) {
      context.warn(removal.status().message());
      store.details["remark"] = "could not be removed";
      code = ExitCode::kIoError;
      continue;
    }
    store.details["remark"] = removal_text(*removal);
    store.details["removed"] = *removal == Removal::kGone;
    if (*removal != Removal::kNotStale) {
      removed_bytes += store.details["size_bytes"].get<uint64_t>();
    }
  }
  context.document().summary["removed_bytes"] = removed_bytes;
  return code;
}

}  // namespace

std::unique_ptr<Command> make_clean_command() { return std::make_unique<CleanCommand>(); }

}  // namespace zoffload::bench
