// The ports that the flows use, with the books kept: each verb goes to the real port and tells the
// Attribution what has started. What the caller polls, and what is not asynchronous, is the real
// port's.
#pragma once

#include <span>

#include "core/engine/attribution.h"
#include "core/ports/communicator.h"
#include "core/ports/device.h"
#include "core/ports/workers.h"

namespace zoffload {

class MeteredDevice final : public Device {
 public:
  MeteredDevice(Device& device, Attribution& attribution)
      : device_(device), attribution_(attribution) {}

  const char* name() const override { return device_.name(); }
  Result<DeviceSpan> allocate_hbm(uint64_t bytes) override { return device_.allocate_hbm(bytes); }
  Result<HostSpan> allocate_pinned(uint64_t bytes) override {
    return device_.allocate_pinned(bytes);
  }
  void copy_to_device(HostSpan from, DeviceSpan to, Completion& completion) override {
    device_.copy_to_device(from, to, completion);
    attribution_.copying(Resource::kLinkUp, to.bytes(), completion);
  }
  void copy_to_host(DeviceSpan from, HostSpan to, Completion& completion) override {
    device_.copy_to_host(from, to, completion);
    attribution_.copying(Resource::kLinkDown, from.bytes(), completion);
  }
  void copy_on_device(DeviceSpan from, DeviceSpan to, Completion& completion) override {
    device_.copy_on_device(from, to, completion);
    attribution_.copying(Resource::kOnDevice, to.bytes(), completion);
  }
  void fence(Stream stream, Completion& completion) override {
    device_.fence(stream, completion);
    attribution_.fencing(completion);
  }
  uint32_t poll() override { return device_.poll(); }
  HostSpan host_view(DeviceSpan span) override { return device_.host_view(span); }

 private:
  Device& device_;
  Attribution& attribution_;
};

class MeteredWorkers final : public Workers {
 public:
  MeteredWorkers(Workers& workers, Attribution& attribution)
      : workers_(workers), attribution_(attribution) {}

  uint32_t count() const override { return workers_.count(); }
  void submit(Job& job, Completion& completion) override {
    workers_.submit(job, completion);
    attribution_.working(job, completion);
  }
  uint32_t poll() override { return workers_.poll(); }

 private:
  Workers& workers_;
  Attribution& attribution_;
};

class MeteredCommunicator final : public Communicator {
 public:
  MeteredCommunicator(Communicator& communicator, Attribution& attribution)
      : communicator_(communicator), attribution_(attribution) {}

  const char* name() const override { return communicator_.name(); }
  uint32_t rank() const override { return communicator_.rank(); }
  uint32_t world_size() const override { return communicator_.world_size(); }
  void all_gather(Turn turn, DeviceSpan own, DeviceSpan all, Completion& completion) override {
    communicator_.all_gather(turn, own, all, completion);
    attribution_.exchanging(all.bytes(), completion);
  }
  void reduce_scatter_mean(Turn turn, DeviceSpan all, DeviceSpan own, DType dtype,
                           Completion& completion) override {
    communicator_.reduce_scatter_mean(turn, all, own, dtype, completion);
    attribution_.exchanging(all.bytes(), completion);
  }
  void all_reduce_sum(Turn turn, std::span<double> values, Completion& completion) override {
    communicator_.all_reduce_sum(turn, values, completion);
    attribution_.exchanging(values.size_bytes(), completion);
  }
  void abort(const Status& reason) override { communicator_.abort(reason); }
  uint32_t poll() override { return communicator_.poll(); }

 private:
  Communicator& communicator_;
  Attribution& attribution_;
};

}  // namespace zoffload
