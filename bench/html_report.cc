#include "bench/html_report.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "bench/facets.h"
#include "bench/html_style.h"
#include "bench/output.h"
#include "bench/quantity.h"
#include "bench/read_document.h"
#include "bench/report_plots.h"
#include "bench/svg_plot.h"
#include "bench/value_text.h"
#include "core/base/check.h"

namespace zoffload::bench {
namespace {

// A table of names and values.
std::string facts(const Leaves& leaves) {
  if (leaves.empty()) return "";
  std::string out = "<div class=\"facts\"><table><tbody>";
  for (const auto& [key, value] : leaves) {
    out += "<tr><th scope=\"row\">" + escape_html(key) + "</th><td>" + escape_html(value) +
           "</td></tr>";
  }
  return out + "</tbody></table></div>";
}

Json without(const Json& object, const std::set<std::string>& keys) {
  Json rest = Json::object();
  if (!object.is_object()) return rest;
  for (const auto& [key, value] : object.items()) {
    if (!keys.contains(key)) rest[key] = value;
  }
  return rest;
}

// The command that was run, without the program's path.
std::string command_line(const Json& document) {
  std::string text = "zoffload-bench";
  const Json& argv = at_or_null(document, "argv");
  for (size_t i = 1; argv.is_array() && i < argv.size(); ++i) text += " " + value_text("", argv[i]);
  return text;
}

// A heading for a part that every document has, with the label where there are several.
std::string part_title(const std::string& title, size_t count, const std::string& label) {
  return count > 1 ? title + ": " + label : title;
}

std::string header(const std::vector<Json>& documents, const std::vector<std::string>& labels) {
  std::string title = "zoffload-bench";
  if (documents.size() == 1 && !labels[0].empty()) title += ": " + labels[0];
  if (documents.size() > 1) title += ": " + std::to_string(documents.size()) + " runs";
  std::string out = "<header><h1>" + escape_html(title) + "</h1>";
  for (size_t i = 0; i < documents.size(); ++i) {
    const Json& tool = at_or_null(documents[i], "tool");
    std::string line = documents.size() > 1 ? labels[i] + ": " : "";
    line += string_or(documents[i], "started", "start not known");
    const std::string version = string_or(tool, "version", "");
    if (!version.empty()) line += ", version " + version;
    out += "<p class=\"soft\">" + escape_html(line) + "<br><code>" +
           escape_html(command_line(documents[i])) + "</code></p>";
  }
  return out + "</header>\n";
}

// What `probe` found, with the remedy where it is needed.
struct Finding {
  bool is_ok = true;
  std::string what;
  std::string says;
};

std::vector<Finding> findings_of(const Json& document) {
  std::vector<Finding> findings;
  const Json& list = at_or_null(at_or_null(document, "host"), "findings");
  for (const Json& entry : list.is_array() ? list : Json::array()) {
    Finding finding{string_or(entry, "level", "ok") == "ok", string_or(entry, "what", ""),
                    string_or(entry, "says", "")};
    const std::string remedy = string_or(entry, "remedy", "");
    if (!remedy.empty()) finding.says += "; remedy: " + remedy;
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<std::string> warnings_of(const Json& document) {
  std::vector<std::string> said;
  const auto add = [&said](const std::string& warning) {
    if (std::find(said.begin(), said.end(), warning) == said.end()) said.push_back(warning);
  };
  const Json& list = at_or_null(at_or_null(document, "summary"), "warnings");
  for (const Json& warning : list.is_array() ? list : Json::array()) add(value_text("", warning));
  for (const Finding& finding : findings_of(document)) {
    if (!finding.is_ok) add(finding.what + ": " + finding.says);
  }
  return said;
}

std::string warnings(const std::vector<Json>& documents, const std::vector<std::string>& labels) {
  std::string items;
  for (size_t i = 0; i < documents.size(); ++i) {
    const std::string whose = documents.size() > 1 ? labels[i] + ": " : "";
    for (const std::string& warning : warnings_of(documents[i])) {
      items += "<li>" + escape_html(whose + warning) + "</li>";
    }
  }
  if (items.empty()) return "";
  return "<div class=\"warnings\"><h2>Warnings</h2><ul>" + items + "</ul></div>\n";
}

Leaves finding_facts(const Json& document) {
  Leaves leaves;
  for (const Finding& finding : findings_of(document)) {
    leaves.emplace_back(finding.what, finding.says);
  }
  return leaves;
}

std::string remarks(const Json& result) {
  std::string text;
  const auto add = [&text](const std::string& remark) {
    text += (text.empty() ? "" : ", ") + remark;
  };
  const Json& verified = at_or_null(result, "verified");
  if (verified.is_boolean()) add(verified.get<bool>() ? "verified" : "VERIFICATION FAILED");
  const Json& errors = at_or_null(result, "errors");
  if (errors.is_number() && errors.get<double>() > 0) add(value_text("", errors) + " errors");
  const Json& interrupted = at_or_null(result, "interrupted");
  if (interrupted.is_boolean() && interrupted.get<bool>()) add("interrupted");
  return text;
}

std::string latency_cell(const Json& result, const char* percentile) {
  const Json& value = at_or_null(at_or_null(result, "latency_ns"), percentile);
  return value.is_number() ? nanoseconds_text(value.get<double>()) : "";
}

std::string spread_cell(const Samples& bandwidth) {
  if (bandwidth.values.size() < 2 || bandwidth.mean() <= 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * bandwidth.stdev() / bandwidth.mean());
  return text;
}

std::string cpu_cell(const Json& result) {
  const Json& cpu = at_or_null(result, "cpu_seconds");
  const Json& bytes = at_or_null(result, "bytes");
  const bool known = cpu.is_number() && bytes.is_number() && bytes.get<double>() > 0;
  if (!known || cpu.get<double>() <= 0) return "";
  return nanoseconds_text(1e9 * cpu.get<double>() / bytes.get<double>() * 1024 * 1024 * 1024);
}

struct Column {
  std::string title;
  bool right = false;
  std::vector<std::string> cells;
};

// Columns that are empty are left out.
std::string table(const std::vector<Column>& columns) {
  std::string out = "<div class=\"scroll figures\"><table><thead><tr>";
  const auto is_empty = [](const Column& column) {
    return std::all_of(column.cells.begin(), column.cells.end(),
                       [](const std::string& cell) { return cell.empty(); });
  };
  std::vector<const Column*> shown;
  for (const Column& column : columns) {
    if (!is_empty(column)) shown.push_back(&column);
  }
  for (const Column* column : shown) {
    out += std::string("<th scope=\"col\"") + (column->right ? " class=\"right\">" : ">") +
           escape_html(column->title) + "</th>";
  }
  out += "</tr></thead><tbody>";
  for (size_t row = 0; row < columns.front().cells.size(); ++row) {
    out += "<tr>";
    for (const Column* column : shown) {
      const bool is_long = column->cells[row].size() > 36;
      out += std::string("<td") +
             (column->right ? " class=\"right\">"
              : is_long     ? " class=\"long\">"
                            : ">") +
             escape_html(column->cells[row]) + "</td>";
    }
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

std::string results_table(const std::vector<Row>& rows) {
  std::vector<Column> columns = {{"run", false, {}}, {"what", false, {}}};
  for (const Row& row : rows) columns[0].cells.push_back(row.document);
  for (const Row& row : rows) columns[1].cells.push_back(row.name);
  const std::vector<std::string> varying = varying_params(rows);
  for (const std::string& key : varying) {
    Column column{key_text(key), false, {}};
    column.right = std::all_of(rows.begin(), rows.end(), [&key](const Row& row) {
      return !at_or_null(row.params, key).is_string();
    });
    for (const Row& row : rows) {
      const Json& value = at_or_null(row.params, key);
      column.cells.push_back(value.is_null() ? "" : value_text(key, value));
    }
    columns.push_back(std::move(column));
  }
  const auto add = [&](const char* title, bool right, const auto& cell) {
    columns.push_back({title, right, {}});
    for (const Row& row : rows) columns.back().cells.push_back(cell(row));
  };
  add("median bandwidth", true, [](const Row& row) {
    return row.bandwidth.empty() ? "" : format_rate(row.bandwidth.median());
  });
  add("deviation", true, [](const Row& row) { return spread_cell(row.bandwidth); });
  for (const auto& [key, title] : {std::pair("p50", "p50"), {"p99", "p99"}, {"p99_9", "p99.9"}}) {
    add(title, true, [key = key](const Row& row) { return latency_cell(row.result, key); });
  }
  add("CPU per GiB", true, [](const Row& row) { return cpu_cell(row.result); });
  add("remarks", false, [](const Row& row) { return remarks(row.result); });

  Json common = without(rows.front().params, {varying.begin(), varying.end()});
  const std::string same = params_text(common);
  const std::string intro =
      same.empty() ? "" : "<p class=\"how\">The same for all: " + escape_html(same) + ".</p>";
  return intro + table(columns);
}

// A table for each set of parameters: one for all would be wide, and mostly empty.
std::string results_section(const std::vector<Row>& rows) {
  std::vector<std::pair<std::set<std::string>, std::vector<Row>>> groups;
  for (const Row& row : rows) {
    std::set<std::string> keys;
    for (const auto& item : row.params.items()) keys.insert(item.key());
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&keys](const auto& group) { return group.first == keys; });
    if (found == groups.end()) found = groups.insert(found, {keys, {}});
    found->second.push_back(row);
  }
  std::string tables;
  for (const auto& [keys, alike] : groups) tables += results_table(alike);
  return rows.empty() ? "" : section("Results", "", tables);
}

// A row for each result, a column for each of their details.
std::string details_table(const std::vector<const Row*>& rows,
                          const std::vector<std::string>& varying) {
  std::vector<Column> columns = {{"result", false, {}}};
  for (size_t i = 0; i < rows.size(); ++i) {
    columns[0].cells.push_back(row_text(*rows[i], varying));
    for (const auto& [key, value] : leaves_of(rows[i]->result["details"])) {
      auto column = std::find_if(columns.begin(), columns.end(),
                                 [key = key](const Column& other) { return other.title == key; });
      if (column == columns.end()) column = columns.insert(column, Column{key, true, {}});
      column->cells.resize(i);
      column->cells.push_back(value);
    }
  }
  for (Column& column : columns) column.cells.resize(rows.size());
  return table(columns);
}

// What only some commands measure.
std::string details_section(const std::vector<Row>& rows) {
  constexpr size_t kListsMax = 4;
  std::vector<const Row*> detailed;
  for (const Row& row : rows) {
    if (!leaves_of(at_or_null(row.result, "details")).empty()) detailed.push_back(&row);
  }
  const std::vector<std::string> varying = varying_params(rows);
  if (detailed.size() > kListsMax) {
    return section("More figures", "", details_table(detailed, varying));
  }
  std::string body;
  for (const Row* row : detailed) {
    body += "<figure><figcaption>" + escape_html(row_text(*row, varying)) + "</figcaption>" +
            facts(leaves_of(row->result["details"])) + "</figure>";
  }
  if (!body.empty()) body = "<div class=\"plots\">" + body + "</div>";
  return section("More figures", "", body);
}

// Each part of the fragment in a box of its own, since each goes into a file of its own.
std::string config_section(const Json& config, const std::string& title) {
  if (!config.is_object()) return "";
  std::string body;
  for (const auto& [key, value] : config.items()) {
    const std::string text =
        value.is_string()
            ? value.get<std::string>()
            : Json({{key, value}}).dump(2, ' ', false, Json::error_handler_t::replace);
    body += "<p><code>" + escape_html(key) + "</code></p><pre>" + escape_html(text) + "</pre>";
  }
  return section(title, "What this run found to be good, to paste.", body);
}

// The label, or else the command, for the title of a single document.
std::string label_of(const Json& document) {
  const std::string label = string_or(document, "label", "");
  const Json& argv = at_or_null(document, "argv");
  const bool has_command = argv.is_array() && argv.size() > 1 && argv[1].is_string();
  return !label.empty() ? label : has_command ? argv[1].get<std::string>() : "";
}

}  // namespace

std::string render_html(const std::vector<Json>& documents,
                        const std::vector<std::string>& labels) {
  ZO_CHECK(documents.size() == labels.size());
  const std::vector<Row> rows = rows_of(documents, labels);
  const std::string title = documents.size() == 1 ? labels[0] : "several runs";
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>zoffload-bench " +
      escape_html(title) + "</title>\n<style>" + kHtmlStyle + "</style>\n</head>\n<body>\n";
  out += header(documents, labels) + warnings(documents, labels);
  out += best_section(rows) + bandwidth_section(rows) + bound_section(rows);
  out += stalls_section(rows) + results_section(rows) + samples_section(rows);
  out += latency_section(rows) + series_section(rows) + details_section(rows);
  const bool has_facts = std::any_of(documents.begin(), documents.end(), [](const Json& document) {
    return !finding_facts(document).empty();
  });
  if (rows.empty() && !has_facts) out += "<p>There are no results.</p>\n";
  const size_t count = documents.size();
  for (size_t i = 0; i < count; ++i) {
    const Json& document = documents[i];
    out += config_section(at_or_null(document, "config"), part_title("Config", count, labels[i]));
    out += section(part_title("Findings", count, labels[i]), "", facts(finding_facts(document)));
    out += section(part_title("Summary", count, labels[i]), "",
                   facts(leaves_of(without(at_or_null(document, "summary"), {"warnings"}))));
    out += section(part_title("Host", count, labels[i]), "",
                   facts(leaves_of(without(at_or_null(document, "host"), {"findings"}))));
    out += section(part_title("Program", count, labels[i]), "",
                   facts(leaves_of(at_or_null(document, "tool"))));
  }
  return out + "</body>\n</html>\n";
}

Status write_html(const Json& document, const std::string& path) {
  return write_html(std::vector<Json>(1, document), {label_of(document)}, path);
}

Status write_html(const std::vector<Json>& documents, const std::vector<std::string>& labels,
                  const std::string& path) {
  return write_text(render_html(documents, labels), path);
}

}  // namespace zoffload::bench
