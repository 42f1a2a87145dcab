// The nanobind module zoffload._core.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "aio/probe.h"
#include "bindings/aio.h"
#include "bindings/engine.h"
#include "bindings/errors.h"
#include "bindings/state_formats.h"
#include "core/plan/config.h"
#include "core/plan/parse_bytes.h"
#include "optim/simd_targets.h"

namespace nb = nanobind;

namespace zoffload {

namespace {

nb::dict uring_dict(const UringProbe& probe) {
  nb::dict result;
  result["state"] = uring_state_name(probe.state);
  result["why"] = probe.why;
  result["features"] = probe.features;
  return result;
}

nb::dict path_dict(const std::string& folder) {
  const IoProbe probe = probe_path(folder);
  nb::dict result;
  result["ok"] = probe.status.ok();
  result["error"] = probe.status.message();
  result["folder"] = probe.folder;
  result["file_system"] = probe.file_system;
  result["is_memory"] = probe.is_memory;
  result["is_overlay"] = probe.is_overlay;
  result["free_bytes"] = probe.free_bytes;
  result["direct"] = probe.direct;
  result["direct_alignment"] = probe.direct_alignment;
  result["why_not_direct"] = probe.why_not_direct;
  result["uring"] = uring_dict(probe.uring);
  return result;
}

Config parse_or_raise(const std::string& json, uint32_t world_size) {
  if (world_size == 0)
    raise_if_error(Status(Code::kInvalidArgument, "world_size is 0; it must be at least 1"));
  auto config = parse_config(json, world_size);
  raise_if_error(config.status());
  return std::move(*config);
}

nb::tuple shares(const Placement& placement) {
  return nb::make_tuple(placement.hbm, placement.host, placement.nvme);
}

nb::list rules_of(const Config& config) {
  nb::list rules;
  for (const FormatRule& rule : config.rules) {
    rules.append(nb::make_tuple(rule.params, state_format_name(rule.format)));
  }
  return rules;
}

// What the engine has to say goes to stderr: stdout is the user's.
void set_up_log() {
  spdlog::set_default_logger(spdlog::stderr_color_mt("zoffload"));
  spdlog::set_pattern("%n: %^%l%$: %v");
}

void bind_config(nb::module_& module) {
  nb::class_<Config>(module, "Config", "A DeepSpeed config file as plain values; see parse_config.")
      .def_ro("world_size", &Config::world_size)
      .def_ro("stage", &Config::stage)
      .def_ro("train_batch_size", &Config::train_batch_size)
      .def_ro("train_micro_batch_size_per_gpu", &Config::train_micro_batch_size_per_gpu)
      .def_ro("gradient_accumulation_steps", &Config::gradient_accumulation_steps)
      .def_prop_ro("dtype", [](const Config& c) { return dtype_name(c.dtype); })
      .def_ro("gradient_clipping", &Config::gradient_clipping)
      .def_ro("skip_nonfinite", &Config::skip_nonfinite)
      .def_ro("optimizer_given", &Config::optimizer_given)
      .def_ro("optimizer_title", &Config::optimizer_title)
      .def_ro("lr", &Config::lr)
      .def_ro("beta1", &Config::beta1)
      .def_ro("beta2", &Config::beta2)
      .def_ro("eps", &Config::eps)
      .def_ro("weight_decay", &Config::weight_decay)
      .def_ro("momentum", &Config::momentum)
      .def_ro("dampening", &Config::dampening)
      .def_ro("nesterov", &Config::nesterov)
      .def_ro("lr_decay", &Config::lr_decay)
      .def_ro("initial_accumulator_value", &Config::initial_accumulator_value)
      .def_prop_ro("state_format",
                   [](const Config& c) { return state_format_name(c.state_format); })
      .def_prop_ro("rules", &rules_of)
      .def_ro("sub_group_numel", &Config::sub_group_numel)
      .def_ro("subgroup_bytes", &Config::subgroup_bytes)
      .def_prop_ro("params", [](const Config& c) { return shares(c.params); })
      .def_prop_ro("optimizer", [](const Config& c) { return shares(c.optimizer); })
      .def_ro("nvme_paths", &Config::nvme_paths)
      .def_ro("host_bytes", &Config::host_bytes)
      .def_ro("device_bytes", &Config::device_bytes)
      .def_ro("prefetch", &Config::prefetch)
      .def_ro("threads", &Config::threads)
      .def_ro("io_engine", &Config::io_engine)
      .def_ro("io_block_bytes", &Config::io_block_bytes)
      .def_ro("io_queue_depth", &Config::io_queue_depth)
      .def_ro("profile_file", &Config::profile_file)
      .def_ro("verify_reads", &Config::verify_reads)
      .def_ro("allow_memory_paths", &Config::allow_memory_paths)
      .def_ro("stall_timeout_seconds", &Config::stall_timeout_seconds)
      .def_ro("warnings", &Config::warnings);
}

}  // namespace

NB_MODULE(_core, module) {
  using namespace nb::literals;
  // An engine that is never destroyed is closed at exit, and a forked child leaks it on purpose.
  nb::set_leak_warnings(false);
  set_up_log();
  bind_config(module);
  bind_engine(module);
  bind_aio(module);
  bind_state_formats(module);
  module.def("parse_config", &parse_or_raise, "json"_a, "world_size"_a = 1,
             "Reads a DeepSpeed config; raises with every mistake in it, a line each.");
  module.def(
      "explain_config",
      [](const std::string& json, uint32_t world_size) {
        return explain(parse_or_raise(json, world_size));
      },
      "json"_a, "world_size"_a = 1, "A table of every key: value, treatment, meaning.");
  module.def(
      "parse_bytes",
      [](const std::string& text) {
        auto bytes = parse_bytes(text);
        raise_if_error(bytes.status());
        return *bytes;
      },
      "text"_a, "\"256MiB\" or \"2GB\" as a number of bytes.");
  module.def("probe_path", &path_dict, "folder"_a, "What this folder's file system allows.");
  module.def("probe_uring", [] { return uring_dict(probe_uring()); });
  module.def(
      "simd_targets", [] { return simd_targets(); }, "Instruction sets in use, best first.");
}

}  // namespace zoffload
