// The engine as Python sees it: plain numbers and addresses, every verb a blocking call without the
// interpreter lock.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/books.h"
#include "core/open.h"

namespace zoffload {

class PyEngine {
 public:
  PyEngine(nanobind::list buckets, nanobind::dict options);
  ~PyEngine();

  void begin_pass(uint64_t signature);
  std::pair<std::vector<BucketId>, std::vector<BucketId>> prepare(BucketId bucket);
  void offer(BucketId bucket, uint64_t address, Stream stream);
  void lease(BucketId bucket);
  bool release(BucketId bucket);
  std::vector<BucketId> release_all();
  void write_back(BucketId bucket);

  uint32_t acquire_gradients();
  std::pair<uint64_t, uint64_t> gradient_memory(uint32_t slot, BucketId bucket);
  void discard_gradients(uint32_t slot);
  void reclaim_gradients();
  void reduce(BucketId bucket, uint32_t slot, std::vector<ParamId> params, Stream stream);
  void forget_gradients();
  void present(std::vector<std::pair<ParamId, uint64_t>> gradients, bool measured);

  // `hypers` has a dict for each parameter group: values by the names of Hyper's fields.
  nanobind::dict step(nanobind::list hypers, double max_grad_norm, bool skip_nonfinite,
                      double grad_scale);
  void settle();
  void set_update_order(std::vector<ParamId> params);
  void settle_params(std::vector<ParamId> params);
  std::vector<SubgroupId> subgroups_of(ParamId param) const;

  void read_state(ParamId param, const std::string& role, uint64_t address);
  void write_state(ParamId param, const std::string& role, uint64_t address);
  uint64_t update_count(ParamId param);
  void set_update_count(ParamId param, uint64_t count);

  nanobind::dict bucket_layout(BucketId bucket) const;
  nanobind::dict plan() const;
  std::string plan_summary() const { return plan_.summary(); }
  nanobind::dict stats();
  nanobind::dict books();  // also after close(), as they were then
  void start_trace(uint32_t capacity);
  nanobind::tuple take_trace();
  void stop_trace();
  void close();

 private:
  enum class OnSignal { kRaiseAtOnce, kFinishFirst };

  // Runs a verb on the control thread. kFinishFirst is for verbs that use the caller's memory: the
  // signal is raised when they are done.
  void call(const char* name, OnSignal on_signal, ControlThread::Verb verb);
  // The same for a verb that ends at once.
  void call_now(const char* name, std::function<Status(Engine&)> verb);
  HostSpan state_memory(ParamId param, Role role, uint64_t address) const;
  void check_bucket(BucketId bucket) const;
  void check_param(ParamId param) const;

  Plan plan_;
  std::unique_ptr<ControlThread> control_;
  std::optional<Books> last_books_;  // when it was closed
};

void bind_engine(nanobind::module_& module);

}  // namespace zoffload
