// `probe`: what this machine has, what slows training down, and the remedies.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/add_options.h"
#include "bench/commands.h"
#include "bench/host_facts.h"
#include "bench/output.h"

namespace zoffload::bench {
namespace {

class ProbeCommand : public Command {
 public:
  const char* name() const override { return "probe"; }
  const char* summary() const override {
    return "say what this machine and these folders have, and the remedy for what is missing";
  }
  const char* examples() const override {
    return "Look at the machine.\n"
           "  zoffload-bench probe\n"
           "Look at two folders too, and at the drives below them.\n"
           "  zoffload-bench probe --path /mnt/nvme0 --path /mnt/nvme1\n"
           "Keep everything that is known, for a script or a bug report.\n"
           "  zoffload-bench probe --path /mnt/nvme0 --json host.json\n";
  }

  void add_options(CLI::App& app, Options& options) override { add_path_option(app, options); }

  zoffload::Result<ExitCode> run(Context& context) override {
    HostFacts facts = examine_here(context.options().paths);
    findings_ = std::move(facts.findings);
    Document& document = context.document();
    document.host = std::move(facts.host);
    document.host["findings"] = Json::array();
    for (const Finding& finding : findings_) {
      document.host["findings"].push_back(finding.to_json());
    }
    document.summary["warning_count"] = count(Level::kWarn);
    document.summary["failure_count"] = count(Level::kFail);
    return count(Level::kFail) == 0 ? ExitCode::kDone : ExitCode::kUnable;
  }

  std::string print_csv(const Document&) const override {
    std::string text = csv_line({"level", "what", "says", "remedy"});
    for (const Finding& finding : findings_) {
      text += csv_line({level_name(finding.level), finding.what, finding.says, finding.remedy});
    }
    return text;
  }

  std::string print_table(const Document&) const override {
    std::string text;
    for (const Finding& finding : findings_) text += finding.to_string() + "\n";
    return text;
  }

 private:
  uint64_t count(Level level) const {
    uint64_t found = 0;
    for (const Finding& finding : findings_) found += finding.level == level ? 1 : 0;
    return found;
  }

  std::vector<Finding> findings_;
};

}  // namespace

std::unique_ptr<Command> make_probe_command() { return std::make_unique<ProbeCommand>(); }

}  // namespace zoffload::bench
