#include "core/engine/control_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/sim/sim_clock.h"
#include "core/sim/sim_communicator.h"
#include "core/sim/sim_device.h"
#include "core/sim/sim_workers.h"
#include "optim/gradient_math.h"
#include "optim/optimizers.h"
#include "optim/state_codec.h"
#include "tiers/host_tier.h"

// What a stuck engine, or a tier on a dead drive, owns is leaked on purpose: hardware may still be
// at it. Read by LeakSanitizer.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:StuckEngineIsGivenUp\nleak:zoffload::ControlThread::run\n"
         "leak:zoffload::NvmeTier::open\n";
}

namespace zoffload {
namespace {

// Stands still until the test moves it, from any thread.
class ManualClock : public Clock {
 public:
  uint64_t now_ns() const override { return now_ns_; }
  void doze(uint64_t) override {}
  void advance(uint64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<uint64_t> now_ns_ = 0;
};

// What the test and the control thread share.
struct Shared {
  ManualClock clock;
  std::atomic<int> destroyed_count = 0;
  std::atomic<bool> open = false;      // the door at which wait_at() stands
  std::atomic<int> waiting_count = 0;  // flows that stand there
};

// An engine of one small bucket: enough for verbs of the test's own.
class SmallWorld : public EngineWorld {
 public:
  explicit SmallWorld(Shared& shared)
      : shared_(shared),
        device_(sim_clock_, SimDeviceOptions{}, 1, nullptr),
        group_(sim_clock_, 1, SimGroupOptions{}, 1, nullptr),
        workers_(sim_clock_, SimWorkersOptions{}, 1, nullptr) {
    PlanRequest request;
    request.params.host = request.optimizer.host = 1;
    BucketSpec bucket;
    bucket.trainable = false;
    bucket.params = {{"p", 10, 0, {}}};
    Plan plan = std::move(make_plan({bucket}, request).value());
    const HostSpan arena = device_.allocate_pinned(plan.arena_bytes()).value();
    const uint64_t home_bytes = plan.home_bytes[static_cast<size_t>(TierKind::kHost)];
    host_.emplace(arena.first(home_bytes));
    EnginePorts ports{shared.clock, device_, group_.rank(0), workers_, *optimizer_, math_, codec_};
    ports.tiers = {nullptr, &*host_, nullptr};
    ports.slots = arena.subspan(home_bytes);
    EngineOptions options;
    options.stall_timeout_ns = 1'000'000'000;
    engine_ = std::move(Engine::open(ports, std::move(plan), options).value());
  }
  ~SmallWorld() override { ++shared_.destroyed_count; }
  Engine& engine() override { return *engine_; }

 private:
  Shared& shared_;
  SimClock sim_clock_;
  SimDevice device_;
  SimGroup group_;
  SimWorkers workers_;
  const std::unique_ptr<Optimizer> optimizer_ = std::move(*make_optimizer("scalar_adamw"));
  ScalarGradientMath math_;
  ScalarStateCodec codec_;
  std::optional<HostTier> host_;
  std::unique_ptr<Engine> engine_;
};

std::unique_ptr<ControlThread> start(Shared& shared) {
  auto started = ControlThread::start([&shared]() -> Result<std::unique_ptr<EngineWorld>> {
    return std::unique_ptr<EngineWorld>(std::make_unique<SmallWorld>(shared));
  });
  return std::move(started.value());
}

bool forever() { return true; }

// Stands at the door. Like a wait for hardware: a failure does not end it.
class Door : public Wait {
 public:
  explicit Door(Shared& shared) : shared_(shared) { ++shared_.waiting_count; }
  bool ready() override { return shared_.open; }
  std::string what() const override { return "the door"; }
  void await_resume() const {}

 private:
  Shared& shared_;
};

Task<Status> wait_at_door(Shared& shared, Status status) {
  co_await Door(shared);
  co_return status;
}

Task<Status> add(int& sum, int value) {
  sum += value;
  co_return Status();
}

// Waits for a bucket that nobody offers; a failure ends it.
Task<Status> wait_for_bucket(Shared& shared, Engine& engine) {
  ++shared.waiting_count;
  Status status = co_await engine.lease(0);
  co_return status;
}

Task<Status> settle(Engine& engine) { return engine.settle(); }

void yield_until(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

// Goal: many threads may call at once; verbs run one at a time on one thread, and each caller gets
// its own answer. Method: sums without a lock; errors that carry the caller's number.
TEST(ControlThread, CallsFromSeveralThreads) {
  Shared shared;
  auto control = start(shared);
  int sum = 0;
  std::vector<std::thread> callers;
  std::atomic<int> wrong_count = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      const Code code = caller % 2 == 0 ? Code::kInvalidArgument : Code::kUnsupported;
      const std::string text = std::to_string(caller);
      for (int i = 0; i < 100; ++i) {
        Status status = control->call(
            "add", [&](Engine&) { return add(sum, 1); }, forever);
        if (!status.ok()) ++wrong_count;
        shared.open = true;
        status = control->call(
            "fail", [&](Engine&) { return wait_at_door(shared, Status(code, text)); }, forever);
        if (status.code() != code || status.message() != text) ++wrong_count;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong_count, 0);
  EXPECT_EQ(sum, 400);
  EXPECT_TRUE(control->close().ok());  // the errors were the calls', not the engine's
  EXPECT_EQ(shared.destroyed_count, 1);
}

// Goal: close lets what is under way end, answers it, and is final. Method: close while a call
// stands at the door; open it; then call, and close again.
TEST(ControlThread, CloseWhileACallWaits) {
  Shared shared;
  auto control = start(shared);
  auto called = std::async(std::launch::async, [&] {
    return control->call(
        "wait", [&](Engine&) { return wait_at_door(shared, Status(Code::kUnsupported, "mine")); },
        forever);
  });
  yield_until([&] { return shared.waiting_count > 0; });
  auto closed = std::async(std::launch::async, [&] { return control->close(); });
  yield_until([&] {  // until close() has taken effect
    const Status status = control->call("late", settle, forever);
    return !status.ok();
  });
  EXPECT_EQ(shared.destroyed_count, 0);
  shared.open = true;
  EXPECT_EQ(called.get().message(), "mine");
  EXPECT_TRUE(closed.get().ok());
  EXPECT_EQ(shared.destroyed_count, 1);
  const Status late = control->call("late", settle, forever);
  EXPECT_EQ(late.to_string(), "kInvalidArgument: the engine is closed");
  EXPECT_TRUE(control->close().ok());
  EXPECT_EQ(shared.destroyed_count, 1);
}

// Goal: close ends a call that waits for what will not come now, and that is no failure of the run.
// Method: a lease of a bucket that nobody offers.
TEST(ControlThread, CloseEndsACallThatWaitsForTheUser) {
  Shared shared;
  auto control = start(shared);
  auto called = std::async(std::launch::async, [&] {
    return control->call(
        "lease", [&](Engine& engine) { return wait_for_bucket(shared, engine); }, forever);
  });
  yield_until([&] { return shared.waiting_count > 0; });
  EXPECT_TRUE(control->close().ok());
  EXPECT_NE(called.get().message().find("the engine is closed"), std::string::npos);
  EXPECT_EQ(shared.destroyed_count, 1);
}

// Goal: a caller may give up; the verb runs on to its end. Method: patience that ends once the verb
// stands at the door; the door opens at the close.
TEST(ControlThread, PatienceMayRunOut) {
  Shared shared;
  auto control = start(shared);
  const Status status = control->call(
      "wait", [&](Engine&) { return wait_at_door(shared, Status()); },
      [&] { return shared.waiting_count == 0; });
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.error_number(), EINTR);
  shared.open = true;
  EXPECT_TRUE(control->call("next", settle, forever).ok());
  EXPECT_TRUE(control->close().ok());
  EXPECT_EQ(shared.destroyed_count, 1);
}

// Goal: what cannot be made is an error of start(), and nothing is left. Method: a make that fails.
TEST(ControlThread, ErrorAtMake) {
  const auto started = ControlThread::start([]() -> Result<std::unique_ptr<EngineWorld>> {
    return Status(Code::kOutOfMemory, "not enough");
  });
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.status().to_string(), "kOutOfMemory: not enough");
}

// Goal: everything happens on one thread that is not the caller's, the end included. Method: ask.
TEST(ControlThread, OneThreadOwnsTheWorld) {
  Shared shared;
  std::vector<std::thread::id> ids;
  {
    auto started = ControlThread::start([&]() -> Result<std::unique_ptr<EngineWorld>> {
      ids.push_back(std::this_thread::get_id());
      return std::unique_ptr<EngineWorld>(std::make_unique<SmallWorld>(shared));
    });
    const auto note = [&](Engine& engine) {
      ids.push_back(std::this_thread::get_id());
      return engine.settle();
    };
    for (int i = 0; i < 2; ++i) EXPECT_TRUE((*started)->call("id", note, forever).ok());
  }  // closes
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(ids[0], ids[2]);
  EXPECT_NE(ids[0], std::this_thread::get_id());
  EXPECT_EQ(shared.destroyed_count, 1);
}

// Goal: an engine that failed says so at every call and at close. Method: fail it by a verb.
TEST(ControlThread, CloseReturnsTheStickyError) {
  Shared shared;
  auto control = start(shared);
  const auto fail = [](Engine& engine) {
    engine.fail(Status(Code::kIoError, "gone"));
    return engine.settle();
  };
  EXPECT_EQ(control->call("fail", fail, forever).to_string(), "kIoError: gone");
  EXPECT_EQ(control->call("next", settle, forever).to_string(), "kIoError: gone");
  EXPECT_EQ(control->close().to_string(), "kIoError: gone");
  EXPECT_EQ(control->call("late", settle, forever).to_string(), "kIoError: gone");
}

// Goal: an engine stuck on hardware is given up, its memory with it, and callers learn why. Method:
// a verb at the door, and a clock that jumps past two timeouts.
TEST(ControlThread, StuckEngineIsGivenUp) {
  auto shared = std::make_unique<Shared>();
  auto control = start(*shared);
  auto called = std::async(std::launch::async, [&] {
    return control->call(
        "wait", [&](Engine&) { return wait_at_door(*shared, Status()); }, forever);
  });
  yield_until([&] { return shared->waiting_count > 0; });
  while (called.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    shared->clock.advance(2'000'000'000);
    std::this_thread::yield();
  }
  const Status status = called.get();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("wait: waits for the door"), std::string::npos);
  EXPECT_EQ(control->close().code(), Code::kTimeout);
  EXPECT_EQ(shared->destroyed_count, 0);
  static_cast<void>(shared.release());  // the world that was given up refers to it
}

// Goal: a forked child cannot use the engine and cannot hang on it: calls are refused, close and
// destruction do nothing, and the parent's engine lives on. Method: a child that does all three
// within an alarm, whatever the control thread was at.
TEST(ControlThread, ForkedChildKeepsOff) {
  Shared shared;
  auto control = start(shared);
  EXPECT_TRUE(control->call("warm", settle, forever).ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(5);  // a hang is death by signal
    const Status status = control->call("child", settle, forever);
    if (status.code() != Code::kUnsupported) _exit(1);
    if (!control->close().ok()) _exit(2);
    control.reset();
    _exit(shared.destroyed_count == 0 ? 0 : 3);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result)) << "ended by signal " << WTERMSIG(result);
  EXPECT_EQ(WEXITSTATUS(result), 0);
  EXPECT_TRUE(control->call("parent", settle, forever).ok());
  EXPECT_TRUE(control->close().ok());
}

}  // namespace
}  // namespace zoffload
