#include "bench/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "bench/quantity.h"
#include "bench/value_text.h"

namespace zoffload::bench {
namespace {

using Row = std::vector<std::string>;

std::string show_value(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (key.ends_with("_bytes") && value.is_number_unsigned()) {
    return format_exact(value.get<uint64_t>());
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

using Results = std::vector<const Result*>;

void add_keys(const Json& object, std::vector<std::string>& keys) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
}

// The parameters of any result, in the order in which they first appear.
std::vector<std::string> all_params(const Results& results) {
  std::vector<std::string> keys;
  for (const Result* result : results) add_keys(result->params, keys);
  return keys;
}

// Those that have the same parameters, of whatever value: one table for all would be wide, and
// mostly empty.
std::vector<Results> alike(const Document& document) {
  std::vector<Results> groups;
  for (const Result& result : document.results) {
    const auto fits = [&result](const Results& group) {
      return all_params(Results{group.front()}) == all_params(Results{&result});
    };
    const auto found = std::find_if(groups.begin(), groups.end(), fits);
    if (found != groups.end()) {
      found->push_back(&result);
    } else {
      groups.push_back({&result});
    }
  }
  return groups;
}

bool differs(const Results& results, const std::string& key) {
  const Json first = results.front()->params.value(key, Json());
  return std::any_of(results.begin(), results.end(), [&](const Result* result) {
    return result->params.value(key, Json()) != first;
  });
}

// "a, b, c", in lines that fit a terminal.
std::string wrapped(const std::vector<std::string>& items) {
  constexpr size_t kWidth = 100;
  std::string text;
  size_t line = 0;
  for (const std::string& item : items) {
    if (line > 0 && line + 2 + item.size() > kWidth) {
      text += ",\n";
      line = 0;
    } else if (line > 0) {
      text += ", ";
      line += 2;
    }
    text += item;
    line += item.size();
  }
  return text;
}

std::string without_unit(const std::string& key) {
  return key.ends_with("_bytes") ? key.substr(0, key.size() - 6) : key;
}

std::string show_latency(const Histogram& latency, double share) {
  return nanoseconds_text(static_cast<double>(latency.percentile(share)));
}

std::string cpu_per_gib(const Result& result) {
  if (result.cpu_seconds <= 0 || result.bytes == 0) return "";
  const double gib = static_cast<double>(result.bytes) / static_cast<double>(uint64_t{1} << 30);
  return nanoseconds_text(result.cpu_seconds / gib * 1e9);
}

Row table_row(const Result& result, const std::vector<std::string>& keys) {
  Row row = {result.name};
  for (const std::string& key : keys) {
    const bool given = result.params.contains(key);
    row.push_back(given ? show_value(key, result.params.at(key)) : "");
  }
  const Samples& bandwidth = result.bandwidth;
  row.push_back(bandwidth.empty() ? "-" : format_rate(bandwidth.median()));
  char spread[32] = "";
  if (bandwidth.values.size() > 1 && bandwidth.mean() > 0) {
    std::snprintf(spread, sizeof spread, "%.1f %%", 100 * bandwidth.stdev() / bandwidth.mean());
  }
  row.push_back(spread);
  row.push_back(result.latency_ns ? show_latency(*result.latency_ns, 0.5) : "");
  row.push_back(result.latency_ns ? show_latency(*result.latency_ns, 0.99) : "");
  row.push_back(cpu_per_gib(result));
  std::string remarks;
  if (result.verified) remarks += *result.verified ? "verified " : "VERIFICATION FAILED ";
  if (result.errors > 0) remarks += std::to_string(result.errors) + " errors ";
  if (result.interrupted) remarks += "interrupted";
  while (remarks.ends_with(' ')) remarks.pop_back();
  row.push_back(remarks);
  return row;
}

// Columns that are empty in every row but the first are left out.
std::string lay_out(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (size_t column = 0; column < widths.size(); ++column) {
    for (size_t row = 1; row < rows.size(); ++row) {
      widths[column] = std::max(widths[column], rows[row][column].size());
    }
    if (widths[column] > 0) widths[column] = std::max(widths[column], rows[0][column].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      if (widths[column] == 0) continue;
      std::string cell = row[column];
      cell.resize(widths[column], ' ');
      line += (line.empty() ? "" : "  ") + cell;
    }
    while (line.ends_with(' ')) line.pop_back();
    text += line + "\n";
  }
  return text;
}

// What is the same in all lines is said once above them.
std::string table_of(const Results& results) {
  std::vector<std::string> common;
  std::vector<std::string> keys;
  for (const std::string& key : all_params(results)) {
    if (differs(results, key)) {
      keys.push_back(key);
    } else {
      const Json& value = results.front()->params.at(key);
      common.push_back(without_unit(key) + " " + show_value(key, value));
    }
  }
  Row titles = {"what"};
  for (const std::string& key : keys) titles.push_back(without_unit(key));
  for (const char* title : {"bandwidth", "spread", "p50", "p99", "CPU per GiB", "remarks"}) {
    titles.push_back(title);
  }
  std::vector<Row> rows = {titles};
  for (const Result* result : results) rows.push_back(table_row(*result, keys));
  return (common.empty() ? "" : wrapped(common) + "\n") + lay_out(rows);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string csv_value(const Json& object, const std::string& key) {
  const Json value = object.value(key, Json());
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Row csv_row(const Document& document, const Result& result, const std::vector<std::string>& params,
            const std::vector<std::string>& details) {
  Row row = {result.name, document.label};
  for (const std::string& key : params) row.push_back(csv_value(result.params, key));
  row.push_back(std::to_string(result.bytes));
  row.push_back(csv_number(result.seconds));
  const Samples& bandwidth = result.bandwidth;
  for (double figure : {bandwidth.mean(), bandwidth.stdev(), bandwidth.median(), bandwidth.min(),
                        bandwidth.max()}) {
    row.push_back(bandwidth.empty() ? "" : csv_number(figure));
  }
  for (double share : {0.5, 0.99, 0.999}) {
    row.push_back(result.latency_ns ? std::to_string(result.latency_ns->percentile(share)) : "");
  }
  row.push_back(csv_number(result.cpu_seconds));
  row.push_back(std::to_string(result.written_bytes));
  row.push_back(std::to_string(result.errors));
  row.push_back(!result.verified ? "" : *result.verified ? "true" : "false");
  row.push_back(result.interrupted ? "true" : "false");
  for (const std::string& key : details) row.push_back(csv_value(result.details, key));
  return row;
}

Status write_all(int fd, const std::string& text, const std::string& name) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(fd, text.data() + written, text.size() - written);
    if (count > 0) {
      written += static_cast<size_t>(count);
    } else if (errno == EPIPE) {
      return Status();
    } else if (errno != EINTR) {
      return Status::from_errno(errno, name);
    }
  }
  return Status();
}

}  // namespace

std::string print_table(const Document& document) {
  std::string text;
  for (const Results& results : alike(document)) {
    text += (text.empty() ? "" : "\n") + table_of(results);
  }
  return text;
}

std::string print_csv(const Document& document) {
  std::vector<std::string> params;
  std::vector<std::string> details;
  for (const Result& result : document.results) {
    add_keys(result.params, params);
    add_keys(result.details, details);
  }
  Row titles = {"name", "label"};
  titles.insert(titles.end(), params.begin(), params.end());
  for (const char* title :
       {"bytes", "seconds", "bandwidth_mean_bytes_per_s", "bandwidth_stdev_bytes_per_s",
        "bandwidth_median_bytes_per_s", "bandwidth_min_bytes_per_s", "bandwidth_max_bytes_per_s",
        "latency_p50_ns", "latency_p99_ns", "latency_p99_9_ns", "cpu_seconds", "written_bytes",
        "errors", "verified", "interrupted"}) {
    titles.push_back(title);
  }
  titles.insert(titles.end(), details.begin(), details.end());
  std::string text = csv_line(titles);
  for (const Result& result : document.results) {
    text += csv_line(csv_row(document, result, params, details));
  }
  return text;
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) line += (i == 0 ? "" : ",") + csv_field(fields[i]);
  return line + "\r\n";
}

std::string print_json(const Document& document) {
  return document.to_json().dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_text(const std::string& text, const std::string& file) {
  if (file.empty()) return write_all(STDOUT_FILENO, text, "stdout");
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Status::from_errno(errno, file);
  Status status = write_all(fd, text, file);
  if (::close(fd) != 0 && status.ok()) status = Status::from_errno(errno, file);
  return status;
}

zoffload::Result<std::string> read_text(const std::string& file) {
  std::error_code error;
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream.is_open() || std::filesystem::is_directory(file, error)) {
    const int number = stream.is_open() ? EISDIR : errno != 0 ? errno : EIO;
    return Status(Code::kInvalidArgument, Status::from_errno(number, file).message());
  }
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream.bad()) return text;
  return Status(Code::kInvalidArgument, file + ": cannot be read to its end");
}

Status check_writable(const std::string& file) {
  struct stat facts = {};
  if (stat(file.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode)) return Status(Code::kInvalidArgument, file + ": is a folder");
    if (access(file.c_str(), W_OK) == 0) return Status();
    return Status::from_errno(errno, file);
  }
  const std::string parent = std::filesystem::path(file).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (stat(folder.c_str(), &facts) == 0 && !S_ISDIR(facts.st_mode)) {
    return Status(Code::kInvalidArgument, folder + ": not a folder");
  }
  if (access(folder.c_str(), W_OK) == 0) return Status();
  return Status::from_errno(errno, folder);
}

}  // namespace zoffload::bench
