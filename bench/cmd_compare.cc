// compare: two documents, pair by pair, and whether B is worse.
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/add_options.h"
#include "bench/commands.h"
#include "bench/compare_documents.h"
#include "bench/quantity.h"
#include "bench/read_document.h"
#include "bench/text_table.h"
#include "bench/value_text.h"

namespace zoffload::bench {
namespace {

constexpr size_t kSaidMax = 8;  // lines of a kind on stderr; the document has all

std::string percent(const Json& value) {
  if (!value.is_number()) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", value.get<double>());
  return text;
}

std::string signed_percent(const Json& value) {
  const bool is_gain = value.is_number() && value.get<double>() > 0;
  return (is_gain ? "+" : "") + percent(value);
}

Json percent_or_null(const std::optional<double>& share) {
  return share ? Json(*share * 100) : Json();
}

Result result_of(const ComparedPair& pair) {
  Result result;
  result.name = pair.name;
  result.params = pair.params;
  result.bandwidth = pair.b;
  result.details = {{"a_median_bytes_per_s", pair.a.median()},
                    {"b_median_bytes_per_s", pair.b.median()},
                    {"change_percent", percent_or_null(pair.change)},
                    {"noise_percent", percent_or_null(pair.noise)},
                    {"verdict", verdict_name(pair.verdict)}};
  return result;
}

void say_some(Context& context, const std::string& what, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  context.say(what + ":");
  for (size_t i = 0; i < lines.size() && i < kSaidMax; ++i) context.say("  " + lines[i]);
  if (lines.size() > kSaidMax) {
    context.say("  and " + std::to_string(lines.size() - kSaidMax) + " more");
  }
}

class CompareCommand : public Command {
 public:
  const char* name() const override { return "compare"; }
  const char* summary() const override {
    return "show what changed between two results, beside their noise";
  }
  const char* examples() const override {
    return "Did the new kernel change anything?\n"
           "  zoffload-bench compare before.json after.json\n"
           "Let a nightly job fail if any figure lost more than 5 %\n"
           "  zoffload-bench compare baseline.json tonight.json --fail-over 5%\n"
           "Compare two drives: the paths differ, and may\n"
           "  zoffload-bench compare drive_a.json drive_b.json --ignore path\n";
  }

  void add_options(CLI::App& app, Options&) override {
    add_text(app, "A", a_, "the results to compare with, as --output json wrote them").required();
    add_text(app, "B", b_, "the results in question").required();
    add_percent(app, "--fail-over", fail_over_,
                "end with exit code 1 if any bandwidth of B is lower by more than this and by more "
                "than the noise; without repeats the noise is unknown and counts as none");
    add_texts(app, "--ignore", ignored_,
              "parameters that may differ within a pair, named as in the table or by their flags, "
              "such as path or block-size")
        .comma_list()
        .type_name("KEY");
  }

  NamedFiles files() const override { return {{a_, b_}, {}}; }

  zoffload::Result<ExitCode> run(Context& context) override {
    ZO_ASSIGN_OR_RETURN(const Json a, read_document(a_));
    ZO_ASSIGN_OR_RETURN(const Json b, read_document(b_));
    ZO_ASSIGN_OR_RETURN(const std::set<std::string> ignored, params_named(ignored_, a, b));
    const Comparison comparison = compare_documents(a, b, ignored);
    say_some(context, "the hosts differ", comparison.host_differences);
    say_some(context, "only in A, " + a_, comparison.only_a);
    say_some(context, "only in B, " + b_, comparison.only_b);
    if (comparison.pairs.empty()) {
      return Status(Code::kInvalidArgument, "nothing to compare: no result of " + a_ +
                                                " has the name and the parameters "
                                                "of one in " +
                                                b_ + "; --ignore names parameters that may differ");
    }
    return judge(comparison, context);
  }

  std::string print_table(const Document& document) const override {
    if (document.results.empty()) return "";
    std::vector<std::vector<std::string>> rows = {
        {"figure", "A", "B", "change", "noise", "verdict"}};
    std::map<std::string, std::vector<const Json*>> params;  // by name: each kind has its own
    for (const Result& result : document.results) params[result.name].push_back(&result.params);
    for (const Result& result : document.results) {
      const std::string differing = params_text(result.params, differing_keys(params[result.name]));
      rows.push_back({result.name + (differing.empty() ? "" : ", " + differing),
                      format_rate(result.details["a_median_bytes_per_s"].get<double>()),
                      format_rate(result.details["b_median_bytes_per_s"].get<double>()),
                      signed_percent(result.details["change_percent"]),
                      percent(result.details["noise_percent"]),
                      result.details["verdict"].get<std::string>()});
    }
    return text_table(rows, {1, 2, 3, 4});
  }

 private:
  // Fills the document, and decides.
  ExitCode judge(const Comparison& comparison, Context& context) const;

  std::string a_;
  std::string b_;
  double fail_over_ = -1;  // a share; negative: no threshold
  std::vector<std::string> ignored_;
};

ExitCode CompareCommand::judge(const Comparison& comparison, Context& context) const {
  Document& document = context.document();
  Json counts = {{"better", 0}, {"worse", 0}, {"same", 0}, {"unclear", 0}};
  std::vector<std::string> failed;
  for (const ComparedPair& pair : comparison.pairs) {
    document.results.push_back(result_of(pair));
    Json& count = counts[verdict_name(pair.verdict)];
    count = count.get<int>() + 1;
    if (fail_over_ < 0 || !is_worse_by(pair, fail_over_)) continue;
    const std::string params = params_text(pair.params);
    failed.push_back(pair.name + (params.empty() ? "" : ", " + params) + ": " +
                     percent(percent_or_null(pair.change)));
  }
  document.summary["pairs"] = counts;
  document.summary["only_in_a"] = comparison.only_a;
  document.summary["only_in_b"] = comparison.only_b;
  document.summary["host_differences"] = comparison.host_differences;
  document.summary["failed"] = failed;
  if (counts["unclear"].get<int>() > 0) {
    context.warn(
        "some pairs have too few repeats to tell a change from noise: measure with "
        "--repeats 3 or more");
  }
  if (fail_over_ >= 0 && !comparison.only_a.empty()) {
    context.warn(std::to_string(comparison.only_a.size()) +
                 " results of A have no partner in B and were not judged");
  }
  if (failed.empty()) return ExitCode::kDone;
  say_some(context, "lower by more than " + percent(Json(fail_over_ * 100)), failed);
  return ExitCode::kThresholdFailed;
}

}  // namespace

std::unique_ptr<Command> make_compare_command() { return std::make_unique<CompareCommand>(); }

}  // namespace zoffload::bench
