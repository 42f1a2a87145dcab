// The flags that several commands share, in groups, and those of our own types.
// A value that cannot be read is an error that names the flag; the exit code is 2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/flag.h"
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

Flag add_size(CLI::App& app, const std::string& name, uint64_t& bytes,
              const std::string& meaning);  // a value of 0 shows as "none"
Flag add_sizes(CLI::App& app, const std::string& name, std::vector<uint64_t>& bytes,
               const std::string& meaning);
Flag add_seconds(CLI::App& app, const std::string& name, double& seconds,
                 const std::string& meaning);
Flag add_rate(CLI::App& app, const std::string& name, double& bytes_per_s,
              const std::string& meaning);
Flag add_percent(CLI::App& app, const std::string& name, double& share, const std::string& meaning);
Flag add_count(CLI::App& app, const std::string& name, uint32_t& count, const std::string& meaning);
Flag add_counts(CLI::App& app, const std::string& name, std::vector<uint32_t>& counts,
                const std::string& meaning);
// --rw: the reads among the requests. `shown` is the default in words.
Flag add_read_share(CLI::App& app, double& share, const std::string& shown);

const char* direct_flag(Direct direct);  // "auto", "on", "off"

}  // namespace zoffload::bench
