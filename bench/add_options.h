// The flags that several commands share, in groups, and the ways to make a flag of a type of ours.
// A value that cannot be read is an error that names the flag; the exit code is 2.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/options.h"
#include "bench/quantity.h"
#include "core/base/status.h"

namespace zoffload::bench {

void add_path_option(CLI::App& app, Options& options);        // --path
void add_storage_options(CLI::App& app, Options& options);    // --path, --size ... --config
void add_measuring_options(CLI::App& app, Options& options);  // --runtime ... --numa
void add_budget_options(CLI::App& app, Options& options);     // --budget, --max-write, --dry-run
// --output, --out, --json, --label, --quiet, --no-progress: the program adds them to every command.
void add_output_options(CLI::App& app, Options& options);

// A flag whose text `parse` turns into `value`; `shown` is the default as --help shows it.
template <typename T>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, T& value,
                        zoffload::Result<T> (*parse)(std::string_view), const std::string& type,
                        const std::string& shown, const std::string& meaning) {
  const auto take = [&value, parse, name](const std::string& text) {
    zoffload::Result<T> parsed = parse(text);
    if (!parsed.ok()) throw CLI::ValidationError(name, parsed.status().message());
    value = std::move(parsed.value());
  };
  const std::string text = shown.empty() ? meaning : meaning + " [" + shown + "]";
  return app.add_option_function<std::string>(name, take, text)->type_name(type);
}

CLI::Option* add_size(CLI::App& app, const std::string& name, uint64_t& bytes,
                      const std::string& meaning);  // a value of 0 shows as "none"
CLI::Option* add_sizes(CLI::App& app, const std::string& name, std::vector<uint64_t>& bytes,
                       const std::string& meaning);
CLI::Option* add_seconds(CLI::App& app, const std::string& name, double& seconds,
                         const std::string& meaning);
CLI::Option* add_rate(CLI::App& app, const std::string& name, double& bytes_per_s,
                      const std::string& meaning);
CLI::Option* add_percent(CLI::App& app, const std::string& name, double& share,
                         const std::string& meaning);
CLI::Option* add_count(CLI::App& app, const std::string& name, uint32_t& count,
                       const std::string& meaning);
CLI::Option* add_counts(CLI::App& app, const std::string& name, std::vector<uint32_t>& counts,
                        const std::string& meaning);
// --rw: the reads among the requests. `shown` is the default in words.
CLI::Option* add_read_share(CLI::App& app, double& share, const std::string& shown);

const char* direct_flag(Direct direct);  // "auto", "on", "off"

}  // namespace zoffload::bench
