// report: results of earlier runs as a page with plots.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/commands.h"
#include "bench/flag.h"
#include "bench/html_report.h"
#include "bench/read_document.h"

namespace zoffload::bench {
namespace {

// The document's own label, or else the file's name; numbered where that was taken.
std::string new_label(const Json& document, const std::string& file,
                      const std::vector<std::string>& taken) {
  const std::string own = string_or(document, "label", "");
  const std::string base = own.empty() ? std::filesystem::path(file).stem().string() : own;
  std::string label = base;
  for (int number = 2; std::find(taken.begin(), taken.end(), label) != taken.end(); ++number) {
    label = base + " (" + std::to_string(number) + ")";
  }
  return label;
}

class ReportCommand : public Command {
 public:
  const char* name() const override { return "report"; }
  const char* summary() const override { return "draw results as one page of HTML"; }
  const char* examples() const override {
    return "Draw a sweep that was measured before\n"
           "  zoffload-bench report sweep.json --html sweep.html\n"
           "Lay two runs over each other\n"
           "  zoffload-bench report before.json after.json --html both.html\n"
           "Measure and draw in one go: every command takes --html\n"
           "  zoffload-bench io --path /mnt/nvme --block-size 256KiB,1MiB,4MiB --html sweep.html\n";
  }

  void add_options(CLI::App& app, Options&) override {
    add_texts(app, "IN", inputs_, "files that --output json wrote; several are overlaid by label")
        .required();
  }

  NamedFiles files() const override { return {inputs_, {}}; }
  bool writes_html() const override { return true; }

  zoffload::Result<ExitCode> run(Context& context) override {
    const std::string& out = context.options().html_file;
    if (out.empty()) return Status(Code::kInvalidArgument, "name the page to write: --html OUT");
    std::vector<Json> documents;
    std::vector<std::string> labels;
    for (const std::string& input : inputs_) {
      ZO_ASSIGN_OR_RETURN(Json document, read_document(input));
      labels.push_back(new_label(document, input, labels));
      documents.push_back(std::move(document));
    }
    ZO_TRY(write_html(documents, labels, out));
    context.say("wrote " + out);
    return ExitCode::kDone;
  }

  std::string print_table(const Document&) const override { return ""; }

 private:
  std::vector<std::string> inputs_;
};

}  // namespace

std::unique_ptr<Command> make_report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace zoffload::bench
