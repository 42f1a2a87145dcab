#include "bindings/engine.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>

#include "bindings/errors.h"
#include "bindings/hypers.h"
#include "core/plan/update_order.h"

namespace nb = nanobind;

namespace zoffload {

namespace {

constexpr double kStallTimeoutMax = 1e9;  // seconds

template <typename T>
T option(const nb::dict& options, const char* key, T fallback) {
  return options.contains(key) ? nb::cast<T>(options[key]) : fallback;
}

Placement shares_option(const nb::dict& options, const char* key) {
  using Shares = std::tuple<double, double, double>;
  const auto [hbm, host, nvme] = option<Shares>(options, key, Shares{0, 1, 0});
  return Placement{hbm, host, nvme};
}

HostSpan host_span(uint64_t address, uint64_t bytes) {
  return HostSpan(reinterpret_cast<std::byte*>(address), bytes);
}

BucketSpec bucket_from(const nb::dict& spec) {
  BucketSpec bucket;
  bucket.name = nb::cast<std::string>(spec["name"]);
  const auto dtype = nb::cast<std::string>(spec["dtype"]);
  if (dtype != "fp32" && dtype != "bf16") {
    raise_if_error(Status(Code::kInvalidArgument, "bucket " + bucket.name + ": dtype is '" + dtype +
                                                      "'; it may be fp32 or bf16"));
  }
  bucket.dtype = dtype == "fp32" ? DType::kFloat32 : DType::kBFloat16;
  bucket.trainable = option(spec, "trainable", true);
  bucket.in_place = option(spec, "in_place", false);
  const auto format = state_format_named(option(spec, "format", std::string("fp32")));
  raise_if_error(format.status());
  bucket.format = *format;
  for (nb::handle item : nb::cast<nb::list>(spec["params"])) {
    using Param = std::tuple<std::string, uint64_t, uint32_t, uint64_t>;
    const auto [name, numel, group, address] = nb::cast<Param>(item);
    ParamSpec param{name, numel, group, {}};
    if (bucket.in_place) param.in_place = host_span(address, numel * dtype_bytes(bucket.dtype));
    bucket.params.push_back(std::move(param));
  }
  return bucket;
}

Task<Status> immediately(std::function<Status(Engine&)> verb, Engine& engine) {
  co_return verb(engine);
}

OpenRequest request_from(const nb::list& buckets, const nb::dict& options) {
  OpenRequest request;
  for (nb::handle bucket : buckets)
    request.model.push_back(bucket_from(nb::cast<nb::dict>(bucket)));
  request.plan.params = shares_option(options, "params");
  request.plan.optimizer = shares_option(options, "optimizer");
  request.plan.host_bytes = option(options, "host_bytes", request.plan.host_bytes);
  request.plan.device_bytes = option(options, "device_bytes", request.plan.device_bytes);
  request.plan.subgroup_bytes = option(options, "subgroup_bytes", uint64_t{0});
  request.plan.subgroup_numel = option(options, "subgroup_numel", request.plan.subgroup_numel);
  request.plan.prefetch = option(options, "prefetch", request.plan.prefetch);
  request.plan.micro_steps = option(options, "micro_steps", request.plan.micro_steps);
  request.optimizer_name = option(options, "optimizer_name", request.optimizer_name);
  request.threads = option(options, "threads", request.threads);
  request.nvme_paths = option(options, "nvme_paths", request.nvme_paths);
  request.io_engine = option(options, "io_engine", request.io_engine);
  request.io_block_bytes = option(options, "block_bytes", request.io_block_bytes);
  request.io_queue_depth = option(options, "queue_depth", request.io_queue_depth);
  request.profile_file = option(options, "profile", request.profile_file);
  request.allow_memory_paths = option(options, "allow_memory_paths", request.allow_memory_paths);
  request.verify_reads = option(options, "verify_reads", request.verify_reads);
  const double stall_timeout = option(options, "stall_timeout", 60.0);
  if (!(stall_timeout > 0 && stall_timeout <= kStallTimeoutMax)) {
    raise_if_error(Status(Code::kInvalidArgument, "stall_timeout: it must be above 0 and at most " +
                                                      std::to_string(kStallTimeoutMax) +
                                                      " seconds"));
  }
  request.engine.stall_timeout_ns = static_cast<uint64_t>(stall_timeout * 1e9);
  return request;
}

Role role_named(const std::string& name) {
  for (Role role : {Role::kParam, Role::kMaster, Role::kExpAvg, Role::kExpAvgSq}) {
    if (name == role_name(role)) return role;
  }
  raise_if_error(Status(Code::kInvalidArgument,
                        "role is '" + name + "'; it may be param, master, exp_avg or exp_avg_sq"));
  return Role::kParam;
}

}  // namespace

PyEngine::PyEngine(nb::list buckets, nb::dict options) {
  OpenRequest request = request_from(buckets, options);
  Status status;
  {
    nb::gil_scoped_release unlocked;
    auto control = open_engine(std::move(request));
    status = control.status();
    if (control.ok()) control_ = std::move(*control);
  }
  raise_if_error(status);
  call_now("plan", [this](Engine& engine) {
    plan_ = engine.plan();
    return Status();
  });
}

PyEngine::~PyEngine() {
  nb::gil_scoped_release unlocked;
  control_.reset();
}

void PyEngine::close() {
  Status status;
  {
    nb::gil_scoped_release unlocked;
    const auto books = std::make_shared<Books>();
    const auto read = [books](Engine& engine) {
      *books = Books::of(engine);
      return Status();
    };
    status = control_->call(
        "books", [=](Engine& engine) { return immediately(read, engine); }, [] { return true; });
    if (status.ok()) last_books_ = std::move(*books);
    status = control_->close();
  }
  static_cast<void>(status);  // the verbs have raised it; closing is always a success
}

void PyEngine::call(const char* name, OnSignal on_signal, ControlThread::Verb verb) {
  std::optional<nb::python_error> raised;  // by a signal's handler
  const auto patience = [&] {
    if (raised.has_value()) return true;
    nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() == 0) return true;
    raised.emplace();
    return on_signal == OnSignal::kFinishFirst;
  };
  Status status;
  {
    nb::gil_scoped_release unlocked;
    status = control_->call(name, std::move(verb), patience);
  }
  if (raised.has_value()) throw nb::python_error(std::move(*raised));
  raise_if_error(status);
}

namespace {

// Runs the task and keeps its value where the caller, or the last of the two to go, finds it.
template <typename T, typename Kept>
Task<Status> keep(Task<Result<T>> task, std::shared_ptr<Kept> value) {
  Result<T> result = co_await task;
  if (result.ok()) *value = std::move(*result);
  co_return result.status();
}

}  // namespace

void PyEngine::call_now(const char* name, std::function<Status(Engine&)> verb) {
  call(name, OnSignal::kFinishFirst,
       [verb = std::move(verb)](Engine& engine) { return immediately(verb, engine); });
}

void PyEngine::check_bucket(BucketId bucket) const {
  if (bucket < plan_.layout.buckets.size() && !plan_.layout.buckets[bucket].in_place) return;
  raise_if_error(Status(Code::kInvalidArgument,
                        "there is no bucket " + std::to_string(bucket) + " to gather"));
}

void PyEngine::check_param(ParamId param) const {
  if (param < plan_.layout.params.size()) return;
  raise_if_error(Status(Code::kInvalidArgument, "there is no parameter " + std::to_string(param)));
}

void PyEngine::begin_pass(uint64_t signature) {
  call_now("begin_pass", [=](Engine& engine) {
    engine.begin_pass(signature);
    return Status();
  });
}

std::pair<std::vector<BucketId>, std::vector<BucketId>> PyEngine::prepare(BucketId bucket) {
  check_bucket(bucket);
  auto orders = std::make_shared<Leases::Orders>();
  call("prepare", OnSignal::kRaiseAtOnce,
       [=](Engine& engine) { return keep(engine.prepare(bucket), orders); });
  return {std::move(orders->drop), std::move(orders->offer)};
}

void PyEngine::offer(BucketId bucket, uint64_t address, Stream stream) {
  check_bucket(bucket);
  const DeviceSpan memory(address, plan_.layout.buckets[bucket].bytes());
  call_now("offer", [=](Engine& engine) { return engine.offer(bucket, memory, stream); });
}

void PyEngine::lease(BucketId bucket) {
  check_bucket(bucket);
  call("lease", OnSignal::kRaiseAtOnce, [=](Engine& engine) { return engine.lease(bucket); });
}

bool PyEngine::release(BucketId bucket) {
  check_bucket(bucket);
  bool free_now = false;
  call_now("release", [&free_now, bucket](Engine& engine) {
    Result<bool> result = engine.release(bucket);
    if (result.ok()) free_now = *result;
    return result.status();
  });
  return free_now;
}

std::vector<BucketId> PyEngine::release_all() {
  auto dropped = std::make_shared<std::vector<BucketId>>();
  call("release_all", OnSignal::kRaiseAtOnce,
       [=](Engine& engine) { return keep(engine.release_all(), dropped); });
  return std::move(*dropped);
}

void PyEngine::write_back(BucketId bucket) {
  check_bucket(bucket);
  call("write_back", OnSignal::kFinishFirst,
       [=](Engine& engine) { return engine.write_back(bucket); });
}

uint32_t PyEngine::acquire_gradients() {
  auto slot = std::make_shared<std::optional<uint32_t>>();
  try {
    call("acquire_gradients", OnSignal::kFinishFirst,
         [=](Engine& engine) { return keep(engine.acquire_gradients(), slot); });
  } catch (const nb::python_error&) {
    if (slot->has_value()) discard_gradients(**slot);  // a signal, and nobody to give it to
    throw;
  }
  return **slot;
}

std::pair<uint64_t, uint64_t> PyEngine::gradient_memory(uint32_t slot, BucketId bucket) {
  check_bucket(bucket);
  DeviceSpan memory;
  call_now("gradient_memory", [&memory, slot, bucket](Engine& engine) {
    memory = engine.gradient_memory(slot, bucket);
    return Status();
  });
  return {memory.address(), memory.bytes()};
}

void PyEngine::discard_gradients(uint32_t slot) {
  call_now("discard_gradients", [=](Engine& engine) {
    engine.discard_gradients(slot);
    return Status();
  });
}

void PyEngine::reclaim_gradients() {
  call_now("reclaim_gradients", [](Engine& engine) {
    engine.reclaim_gradients();
    return Status();
  });
}

void PyEngine::reduce(BucketId bucket, uint32_t slot, std::vector<ParamId> params, Stream stream) {
  check_bucket(bucket);
  for (ParamId param : params) check_param(param);
  call_now("reduce",
           [&](Engine& engine) { return engine.reduce(bucket, slot, std::move(params), stream); });
}

void PyEngine::present(std::vector<std::pair<ParamId, uint64_t>> gradients, bool measured) {
  std::vector<Engine::InPlaceGradient> spans;
  for (const auto& [param, address] : gradients) {
    check_param(param);
    const ParamLayout& layout = plan_.layout.params[param];
    const DType dtype = plan_.layout.buckets[layout.bucket].dtype;
    spans.push_back({param, host_span(address, layout.numel * dtype_bytes(dtype))});
  }
  call_now("present", [&](Engine& engine) { return engine.present(spans, measured); });
}

void PyEngine::forget_gradients() {
  call("forget_gradients", OnSignal::kFinishFirst,
       [](Engine& engine) { return engine.forget_gradients(); });
}

nb::dict PyEngine::step(nb::list hypers, double max_grad_norm, bool skip_nonfinite,
                        double grad_scale) {
  StepOptions options;
  for (nb::handle group : hypers) options.hypers.push_back(hyper_from(nb::cast<nb::dict>(group)));
  for (const ParamLayout& param : plan_.layout.params) {
    if (param.group >= options.hypers.size()) {
      raise_if_error(
          Status(Code::kInvalidArgument,
                 "step: hypers has no entry for parameter group " + std::to_string(param.group)));
    }
  }
  options.max_grad_norm = max_grad_norm;
  options.skip_nonfinite = skip_nonfinite;
  options.grad_scale = grad_scale;
  auto report = std::make_shared<StepReport>();
  call("step", OnSignal::kFinishFirst,
       [=](Engine& engine) { return keep(engine.step(options), report); });
  nb::dict result;
  result["grad_norm"] = report->grad_norm;
  result["skipped"] = report->skipped;
  result["updated_params"] = report->updated_params;
  return result;
}

void PyEngine::settle() {
  call("settle", OnSignal::kFinishFirst, [](Engine& engine) { return engine.settle(); });
}

void PyEngine::set_update_order(std::vector<ParamId> params) {
  for (ParamId param : params) check_param(param);
  call_now("set_update_order", [&params](Engine& engine) {
    engine.set_update_order(std::move(params));
    return Status();
  });
}

void PyEngine::settle_params(std::vector<ParamId> params) {
  for (ParamId param : params) check_param(param);
  call("settle_params", OnSignal::kRaiseAtOnce,
       [params = std::move(params)](Engine& engine) { return engine.settle_params(params); });
}

std::vector<SubgroupId> PyEngine::subgroups_of(ParamId param) const {
  check_param(param);
  return zoffload::subgroups_of(plan_.layout, param);
}

HostSpan PyEngine::state_memory(ParamId param, Role role, uint64_t address) const {
  check_param(param);
  const ParamLayout& layout = plan_.layout.params[param];
  return host_span(address, value_bytes(plan_.layout.buckets[layout.bucket], role, layout.numel));
}

void PyEngine::read_state(ParamId param, const std::string& role, uint64_t address) {
  const Role r = role_named(role);
  const HostSpan memory = state_memory(param, r, address);
  call("read_state", OnSignal::kFinishFirst,
       [=](Engine& engine) { return engine.read_state(param, r, memory); });
}

void PyEngine::write_state(ParamId param, const std::string& role, uint64_t address) {
  const Role r = role_named(role);
  const HostSpan memory = state_memory(param, r, address);
  call("write_state", OnSignal::kFinishFirst,
       [=](Engine& engine) { return engine.write_state(param, r, memory); });
}

uint64_t PyEngine::update_count(ParamId param) {
  check_param(param);
  uint64_t count = 0;
  call_now("update_count", [&count, param](Engine& engine) {
    count = engine.update_count(param);
    return Status();
  });
  return count;
}

void PyEngine::set_update_count(ParamId param, uint64_t count) {
  check_param(param);
  call_now("set_update_count", [=](Engine& engine) {
    engine.set_update_count(param, count);
    return Status();
  });
}

nb::dict PyEngine::bucket_layout(BucketId bucket) const {
  if (bucket >= plan_.layout.buckets.size()) check_bucket(bucket);
  const BucketLayout& layout = plan_.layout.buckets[bucket];
  nb::list params;
  for (uint32_t i = 0; i < layout.param_count; ++i) {
    const ParamLayout& param = plan_.layout.params[layout.first_param + i];
    params.append(nb::make_tuple(param.begin, param.numel));
  }
  nb::dict result;
  result["numel"] = layout.numel;
  result["params"] = params;
  return result;
}

nb::dict PyEngine::plan() const {
  nb::dict home_bytes;
  for (size_t tier = 0; tier < kTierCount; ++tier) {
    home_bytes[tier_name(static_cast<TierKind>(tier))] = plan_.home_bytes[tier];
  }
  nb::dict result;
  result["home_bytes"] = home_bytes;
  result["gradient_bytes"] = plan_.gradient_bytes;
  result["update_slots"] = nb::make_tuple(plan_.update.count, plan_.update.bytes);
  result["staging_slots"] = nb::make_tuple(plan_.staging.count, plan_.staging.bytes);
  result["gradient_slots"] = nb::make_tuple(plan_.gradient.count, plan_.gradient.bytes);
  result["slot_bytes"] = plan_.slot_bytes();
  result["host_bytes"] = plan_.arena_bytes();
  result["device_bytes"] = plan_.device_bytes();
  result["bucket_count"] = plan_.layout.buckets.size();
  result["subgroup_count"] = plan_.layout.subgroups.size();
  result["subgroup_numel"] = plan_.layout.subgroup_numel;
  result["numel"] = plan_.layout.numel_total();
  result["prefetch"] = plan_.prefetch;
  return result;
}

nb::dict PyEngine::stats() {
  EngineStats stats;
  call_now("stats", [&stats](Engine& engine) {
    stats = engine.stats();
    return Status();
  });
  nb::dict loaded;
  nb::dict stored;
  for (size_t tier = 0; tier < kTierCount; ++tier) {
    const char* name = tier_name(static_cast<TierKind>(tier));
    loaded[name] = stats.loaded_bytes[tier];
    stored[name] = stats.stored_bytes[tier];
  }
  nb::dict result;
  result["loaded_bytes"] = loaded;
  result["stored_bytes"] = stored;
  result["gathered_bytes_max"] = stats.gathered_bytes_max;
  result["on_demand_count"] = stats.on_demand_count;
  result["prefetched_count"] = stats.prefetched_count;
  result["deviation_count"] = stats.deviation_count;
  result["step_count"] = stats.step_count;
  result["skipped_step_count"] = stats.skipped_step_count;
  result["update_slots_max"] = stats.update_slots_max;
  result["staging_slots_max"] = stats.staging_slots_max;
  result["gradient_slots_max"] = stats.gradient_slots_max;
  result["unsettled_count"] = stats.unsettled_count;
  return result;
}

void bind_engine(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyEngine>(
      module, "Engine",
      "One rank's engine. Memory is given as addresses; the caller keeps it alive. "
      "Every call blocks without the interpreter lock; errors are zoffload.errors.")
      .def(nb::init<nb::list, nb::dict>(), "buckets"_a, "options"_a)
      .def("begin_pass", &PyEngine::begin_pass, "signature"_a,
           "A forward (and its backward) starts.")
      .def("prepare", &PyEngine::prepare, "bucket"_a,
           "Before lease(): (buckets whose memory is to be freed, buckets to allocate and offer).")
      .def("offer", &PyEngine::offer, "bucket"_a, "address"_a, "stream"_a = 0,
           "Starts gathering the bucket into the memory at `address`.")
      .def("lease", &PyEngine::lease, "bucket"_a, "Waits until the bucket is gathered; holds it.")
      .def("release", &PyEngine::release, "bucket"_a, "True: its memory is to be freed now.")
      .def("release_all", &PyEngine::release_all, "Ends all leases; the buckets to be freed.")
      .def("write_back", &PyEngine::write_back, "bucket"_a,
           "What a leased bucket holds becomes the truth, master weights included.")
      .def("acquire_gradients", &PyEngine::acquire_gradients, "A slot for one bucket of gradients.")
      .def("gradient_memory", &PyEngine::gradient_memory, "slot"_a, "bucket"_a,
           "(address, bytes) of the slot for this bucket.")
      .def("discard_gradients", &PyEngine::discard_gradients, "slot"_a)
      .def("reclaim_gradients", &PyEngine::reclaim_gradients, "Discards every slot that is held.")
      .def("reduce", &PyEngine::reduce, "bucket"_a, "slot"_a, "params"_a, "stream"_a = 0,
           "Takes the gradients of these parameters, and the slot back. Returns at once.")
      .def("present", &PyEngine::present, "gradients"_a, "measured"_a,
           "(param, address) of gradients that stay where they are until settle().")
      .def("forget_gradients", &PyEngine::forget_gradients,
           "As if no gradient had come since the last step.")
      .def("step", &PyEngine::step, "hypers"_a, "max_grad_norm"_a = 0.0, "skip_nonfinite"_a = true,
           "grad_scale"_a = 1.0, "Returns when the norm is known; updates run on.")
      .def("settle", &PyEngine::settle, "Waits until every update is home.")
      .def("set_update_order", &PyEngine::set_update_order, "params"_a,
           "The order in which the next forward needs them: updates follow it from now on.")
      .def("settle_params", &PyEngine::settle_params, "params"_a,
           "Waits until these are updated and nothing reads their gradients.")
      .def("subgroups_of", &PyEngine::subgroups_of, "param"_a,
           "The subgroups that it lies in: each is updated as one.")
      .def("read_state", &PyEngine::read_state, "param"_a, "role"_a, "address"_a)
      .def("write_state", &PyEngine::write_state, "param"_a, "role"_a, "address"_a)
      .def("update_count", &PyEngine::update_count, "param"_a)
      .def("set_update_count", &PyEngine::set_update_count, "param"_a, "count"_a)
      .def("bucket_layout", &PyEngine::bucket_layout, "bucket"_a)
      .def("plan", &PyEngine::plan)
      .def("plan_summary", &PyEngine::plan_summary)
      .def("stats", &PyEngine::stats)
      .def("books", &PyEngine::books, "Where time and bytes went: see zoffload.metrics.")
      .def("start_trace", &PyEngine::start_trace, "capacity"_a,
           "Records up to `capacity` events between two take_trace().")
      .def("take_trace", &PyEngine::take_trace,
           "([(track, name, begin_ns, end_ns, bytes)], events dropped since the start).")
      .def("stop_trace", &PyEngine::stop_trace, "Cuts what is in flight; take_trace() comes next.")
      .def("close", &PyEngine::close,
           "Lets everything in flight end and frees all; may be repeated.");
}

}  // namespace zoffload
