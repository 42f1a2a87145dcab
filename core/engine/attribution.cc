#include "core/engine/attribution.h"

#include <utility>

namespace zoffload {
namespace {

constexpr uint32_t kDepthMax = 8;  // of flows that wait for flows
constexpr double kNs = 1e-9;

// Of one update of the subgroup.
uint64_t update_bytes(const Plan& plan, const SubgroupLayout& subgroup) {
  const BucketLayout& bucket = plan.layout.buckets[subgroup.bucket];
  if (!bucket.trainable) return 0;
  const DType grad =
      bucket.in_place ? bucket.dtype : role_dtype(bucket, Role::kGrad, plan.gradient_dtype);
  return update_traffic_bytes(bucket, grad, subgroup.numel);
}

}  // namespace

void Attribution::Busy::begin(uint64_t now_ns) {
  if (in_flight++ == 0) since_ns = now_ns;
}

void Attribution::Busy::end(uint64_t now_ns) {
  ZO_CHECK(in_flight > 0);
  if (--in_flight == 0) busy_ns += now_ns - since_ns;
}

uint64_t Attribution::Busy::at(uint64_t now_ns) const {
  return in_flight == 0 ? busy_ns : busy_ns + (now_ns - since_ns);
}

Attribution::Attribution(const Clock& clock, const Plan& plan, const FlowSet& flows,
                         const Workers& workers, const Tier* nvme, ResourceRates rates)
    : clock_(clock),
      plan_(plan),
      flows_(flows),
      workers_(workers),
      nvme_(nvme),
      rates_(std::move(rates)),
      open_ns_(clock.now_ns()),
      boundary_ns_(open_ns_) {
  for (const SubgroupLayout& subgroup : plan.layout.subgroups) {
    update_bytes_.push_back(update_bytes(plan, subgroup));
  }
  busy_.resize(Resource::path(static_cast<uint32_t>(paths().size())));
  counted_.resources.resize(busy_.size());
  at_boundary_ = at_start_ = last_ = counted_;
}

// ---- Operations

std::string_view Attribution::flow_name() const {
  return flows_.current() == nullptr ? std::string_view("engine") : flows_.current()->name();
}

Work Attribution::flow_work() const {
  return flows_.current() == nullptr ? Work::kNone : flows_.current()->key().work;
}

void Attribution::begin(const InFlight& operation, Completion& completion) {
  if (completion.done()) {  // at once: it moved its bytes in no time
    busy_[operation.resource].bytes += operation.bytes;
    if (operation.detail != 0) busy_[operation.detail].bytes += operation.bytes;
    return;
  }
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(operations_.size()));
    operations_.emplace_back();
    free_.reserve(operations_.size());
  }
  const uint64_t now_ns = clock_.now_ns();
  const uint32_t index = free_.back();
  free_.pop_back();
  operations_[index] = operation;
  operations_[index].begin_ns = now_ns;
  busy_[operation.resource].begin(now_ns);
  if (operation.detail != 0) busy_[operation.detail].begin(now_ns);
  completion.observe(*this, index + 1);
  if (completion.has_moved()) moved(index + 1);
}

void Attribution::transfer(SubgroupId subgroup, Role role, TierKind tier, Extent extent,
                           bool is_load, Completion& completion) {
  InFlight operation;
  operation.bytes = extent.bytes;
  operation.resource = is_load ? Resource::kLinkDown : Resource::kLinkUp;
  if (tier == TierKind::kNvme && nvme_ != nullptr) {
    const uint32_t path = nvme_->path_of(extent);
    operation.resource = is_load ? Resource::path_read(path) : Resource::path_write(path);
    operation.detail = Resource::path(path);
  }
  if (trace_.recording()) {
    const SubgroupLayout& layout = plan_.layout.subgroups[subgroup];
    const BucketLayout& bucket = plan_.layout.buckets[layout.bucket];
    operation.name = StepTrace::Name(
        std::string(is_load ? "load " : "store ") + role_name(role) + " of " + bucket.name,
        ", subgroup " + std::to_string(subgroup - bucket.first_subgroup));
  }
  begin(operation, completion);
}

void Attribution::loading(SubgroupId subgroup, Role role, TierKind tier, Extent extent,
                          Completion& completion) {
  counted_.loaded_bytes[static_cast<size_t>(tier)][static_cast<size_t>(role)] += extent.bytes;
  transfer(subgroup, role, tier, extent, true, completion);
}

void Attribution::storing(SubgroupId subgroup, Role role, TierKind tier, Extent extent,
                          Completion& completion) {
  counted_.stored_bytes[static_cast<size_t>(tier)][static_cast<size_t>(role)] += extent.bytes;
  transfer(subgroup, role, tier, extent, false, completion);
}

void Attribution::copying(uint32_t resource, uint64_t bytes, Completion& completion) {
  const bool is_gradient = resource == Resource::kLinkDown && flow_work() != Work::kWriteBack;
  const auto role = static_cast<size_t>(is_gradient ? Role::kGrad : Role::kParam);
  Spent::ByRole& by_role = resource == Resource::kLinkUp     ? counted_.to_device_bytes
                           : resource == Resource::kLinkDown ? counted_.to_host_bytes
                                                             : counted_.on_device_bytes;
  by_role[role] += bytes;
  InFlight operation;
  operation.resource = resource;
  operation.bytes = bytes;
  if (trace_.recording()) operation.name = StepTrace::Name("copy: ", flow_name());
  begin(operation, completion);
}

void Attribution::working(const Job& job, Completion& completion) {
  InFlight operation;
  operation.resource = Resource::kWorkers;
  operation.job = &job;
  if (flow_work() == Work::kUpdate) {
    operation.detail = Resource::kUpdate;
    operation.bytes = update_bytes_[flows_.current()->key().id];
  }
  if (trace_.recording()) operation.name = StepTrace::Name(flow_name(), "");
  begin(operation, completion);
}

void Attribution::exchanging(uint64_t bytes, Completion& completion) {
  InFlight operation;
  operation.resource = Resource::kCollective;
  operation.bytes = bytes;
  if (trace_.recording()) operation.name = StepTrace::Name(flow_name(), "");
  begin(operation, completion);
}

void Attribution::fencing(Completion& completion) {
  InFlight operation;
  operation.resource = Resource::kUserStream;
  if (trace_.recording()) operation.name = StepTrace::Name("wait for the stream: ", flow_name());
  begin(operation, completion);
}

void Attribution::end_move(InFlight& operation, uint64_t now_ns) {
  const auto end = [&](uint32_t resource) {
    busy_[resource].end(now_ns);
    busy_[resource].bytes += operation.bytes;
  };
  end(operation.resource);
  if (operation.detail != 0) end(operation.detail);
  if (!trace_.recording() || operation.name.text().empty()) return;
  const bool timed = operation.job != nullptr && operation.job->end_ns >= operation.job->begin_ns &&
                     operation.job->begin_ns > 0;
  const uint64_t begin_ns = timed ? operation.job->begin_ns : operation.begin_ns;
  const uint64_t end_ns = timed ? operation.job->end_ns : now_ns;
  trace_.add({operation.resource, begin_ns, end_ns, operation.bytes, operation.name});
}

void Attribution::moved(uint32_t ticket) {
  InFlight& operation = operations_[ticket - 1];
  ZO_CHECK(!operation.has_moved);
  end_move(operation, clock_.now_ns());
  operation.has_moved = true;
}

void Attribution::finished(uint32_t ticket) {
  InFlight& operation = operations_[ticket - 1];
  if (!operation.has_moved) end_move(operation, clock_.now_ns());
  operation = InFlight();
  free_.push_back(ticket - 1);
}

// ---- The user's thread

Cause Attribution::cause_of(const InFlight& operation) const {
  if (operation.has_moved) return Cause::kCpu;
  if (operation.resource >= Resource::kPaths) return Cause::kDisk;
  switch (operation.resource) {
    case Resource::kWorkers: return Cause::kCpu;
    case Resource::kCollective: return Cause::kTurn;
    case Resource::kUserStream: return Cause::kUser;
    default: return Cause::kLink;
  }
}

// Follows flows that wait for flows to the one that waits for something itself.
Cause Attribution::cause_of(const Flow& flow, uint32_t depth) const {
  const WaitFor wait = flow.wait()->waits_for();
  if (wait.kind == WaitFor::Kind::kCause) return wait.cause;
  if (wait.kind == WaitFor::Kind::kOperation) return cause_of(operations_[wait.ticket - 1]);
  const bool children = wait.kind == WaitFor::Kind::kChildren;
  const Flow* next = flows_.find_parked([&](const Flow& other) {
    return children ? other.parent() == flow.id() : other.key().matches(wait.work);
  });
  return next == nullptr || depth == kDepthMax ? Cause::kEngine : cause_of(*next, depth + 1);
}

std::optional<Cause> Attribution::user_cause() const {
  const Flow* verb =
      flows_.find_parked([](const Flow& flow) { return flow.key().work == Work::kVerb; });
  if (verb == nullptr) return std::nullopt;
  return cause_of(*verb, 0);
}

// Counts the wait so far; what follows is counted later.
void Attribution::cut_stall(uint64_t now_ns) {
  const uint64_t since_ns = std::exchange(stall_since_ns_, now_ns);
  if (!stall_.has_value() || now_ns == since_ns) return;
  counted_.stall_ns[static_cast<size_t>(*stall_)] += now_ns - since_ns;
  static constexpr const char* kNames[kCauseCount] = {
      "wait for disk",      "wait for link",        "wait for CPU workers",
      "wait for ranks",     "wait for a free slot", "wait for the user's work",
      "wait for the engine"};
  note(kNames[static_cast<size_t>(*stall_)], since_ns, now_ns);
}

void Attribution::look_at_user(uint64_t now_ns) {
  const std::optional<Cause> cause = user_cause();
  if (cause == stall_) return;
  cut_stall(now_ns);
  stall_ = cause;
}

void Attribution::note(const char* name, uint64_t begin_ns, uint64_t end_ns) {
  if (!trace_.recording()) return;
  trace_.add({StepTrace::kUser, begin_ns, end_ns, 0, StepTrace::Name(name, "")});
}

// ---- Steps

void Attribution::enter_step() {
  entered_ns_ = clock_.now_ns();
  cut_stall(entered_ns_);
}

void Attribution::end_step() {
  const uint64_t now_ns = clock_.now_ns();
  cut_stall(now_ns);
  counted_.step_ns += now_ns - entered_ns_;
  note("forward and backward", boundary_ns_, entered_ns_);
  note("step", entered_ns_, now_ns);
  at_start_ = at_boundary_;
  report(now_ns);
  ++step_count_;
}

void Attribution::report(uint64_t now_ns) {
  at_boundary_ = spent_at(now_ns);
  last_ = at_boundary_;
  last_ -= at_start_;
  boundary_ns_ = now_ns;
}

void Attribution::settled() {
  const uint64_t now_ns = clock_.now_ns();
  cut_stall(now_ns);
  counted_.step_ns += now_ns - entered_ns_;
  note("settle", entered_ns_, now_ns);
  if (step_count_ > 0) report(now_ns);
}

Spent Attribution::spent() const { return spent_at(clock_.now_ns()); }

Spent Attribution::spent_at(uint64_t now_ns) const {
  Spent spent = counted_;
  spent.wall_ns = now_ns - open_ns_;
  spent.worker_ns = workers_.busy_ns();
  for (size_t i = 0; i < busy_.size(); ++i) {
    spent.resources[i] = {busy_[i].at(now_ns), busy_[i].bytes};
  }
  if (stall_.has_value()) {
    spent.stall_ns[static_cast<size_t>(*stall_)] += now_ns - stall_since_ns_;
  }
  return spent;
}

// ---- Bounds

std::vector<TierPath> Attribution::paths() const {
  return nvme_ == nullptr ? std::vector<TierPath>() : nvme_->paths();
}

std::vector<std::string> Attribution::resource_names() const {
  std::vector<std::string> names = {"link up", "link down",   "device",     "CPU workers",
                                    "update",  "collectives", "user stream"};
  for (const TierPath& path : paths()) {
    names.push_back("disk " + path.name);
    names.push_back("disk read " + path.name);
    names.push_back("disk write " + path.name);
  }
  return names;
}

// What the run has shown so far, while it was busy; 0: nothing yet.
double Attribution::measured_rate(uint32_t resource) const {
  const Busy& busy = busy_[resource];
  const uint64_t busy_ns = busy.at(clock_.now_ns());
  return busy_ns == 0 ? 0 : static_cast<double>(busy.bytes) / (static_cast<double>(busy_ns) * kNs);
}

std::vector<Bound> Attribution::bounds(const Spent& spent) const {
  std::vector<Bound> bounds;
  const auto add = [&](const char* name, uint32_t resource, double rate) {
    if (!(rate > 0)) rate = measured_rate(resource);
    const auto bytes = static_cast<double>(spent.resources[resource].bytes);
    if (bytes > 0 && rate > 0) bounds.push_back({name, bytes / rate});
  };
  const std::vector<TierPath> paths = this->paths();
  for (uint32_t i = 0; i < paths.size(); ++i) {
    PathRates rates = i < rates_.paths.size() ? rates_.paths[i] : PathRates();
    if (!(rates.mixed > 0)) rates.mixed = paths[i].bytes_per_s;
    if (!(rates.mixed > 0)) rates.mixed = measured_rate(Resource::path(i));
    const double seconds = disk_seconds(spent.resources[Resource::path_read(i)].bytes,
                                        spent.resources[Resource::path_write(i)].bytes, rates);
    if (seconds > 0) bounds.push_back({"disk " + paths[i].name, seconds});
  }
  add("link up", Resource::kLinkUp, rates_.to_device);
  add("link down", Resource::kLinkDown, rates_.to_host);
  add("memory", Resource::kUpdate, rates_.memory);
  const double workers_s = static_cast<double>(spent.worker_ns) * kNs / workers_.count();
  if (workers_s > 0) bounds.push_back({"CPU workers", workers_s});
  return bounds;
}

// ---- Trace

void Attribution::start_trace(uint32_t capacity) { trace_.start(clock_.now_ns(), capacity); }

void Attribution::stop_trace() {
  if (!trace_.recording()) return;
  const uint64_t now_ns = clock_.now_ns();
  for (const InFlight& operation : operations_) {
    if (operation.name.text().empty() || operation.has_moved || operation.job != nullptr) continue;
    trace_.add({operation.resource, operation.begin_ns, now_ns, operation.bytes, operation.name});
  }
  trace_.stop();
}

}  // namespace zoffload
