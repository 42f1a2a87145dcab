// The engine when something fails: errors, mistakes of the user, and the watchdog.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/engine_tasks.h"

namespace zoffload {
namespace {

Task<Status> acquire(RigRank& rank, uint32_t& index) {
  auto slot = co_await rank.engine().acquire_gradients();
  ZO_CO_TRY(slot.status());
  index = *slot;
  co_return Status();
}

// Goal: the first error sticks: it names the flow and every later verb returns it. Method: a disk
// that fails one gather and is well again.
TEST(EngineErrors, TheFirstErrorSticks) {
  Rig rig(options_for(2, DType::kFloat32, kNvme, kHost));
  ASSERT_TRUE(rig.run(initialise(rig[0], 0, 1.0f)).ok());
  rig[0].disk().set_faults({.eio = 1.0});
  const Status first = rig.run(rig[0].hold(0));
  EXPECT_EQ(first.code(), Code::kIoError);
  EXPECT_NE(first.message().find("fetch subgroup"), std::string::npos);
  EXPECT_NE(first.message().find("block0"), std::string::npos);
  rig[0].disk().set_faults({});
  Engine& engine = rig[0].engine();
  StepReport report;
  std::vector<float> memory(50);
  const std::string text = first.to_string();
  EXPECT_EQ(rig.run(rig[0].hold(1)).to_string(), text);
  EXPECT_EQ(rig.run(rig[0].give(0, 1, {0})).to_string(), text);
  EXPECT_EQ(rig.run(rig[0].step(0, report)).to_string(), text);
  EXPECT_EQ(rig.run(engine.settle()).to_string(), text);
  EXPECT_EQ(rig.run(rig[0].drop_all()).to_string(), text);
  EXPECT_EQ(rig.run(engine.read_state(1, Role::kParam, bytes_of(memory))).to_string(), text);
  EXPECT_EQ(rig.run(engine.write_state(1, Role::kParam, bytes_of(memory))).to_string(), text);
  EXPECT_EQ(engine.release(0).status().to_string(), text);
  EXPECT_EQ(engine.present({}, false).to_string(), text);
  EXPECT_EQ(engine.failure().to_string(), text);
}

// Goal: an error in the middle of an update sticks too, and the step before it is told at the next
// call. Method: the disk fails all writes when the updates store.
TEST(EngineErrors, AnUpdateThatCannotStoreSticks) {
  Rig rig(options_for(1, DType::kFloat32, kNvme, kNvme));
  StepReport report;
  ASSERT_TRUE(rig.run(rig[0].give(0, 1.0f, {0, 1})).ok());
  rig[0].disk().set_faults({.enospc = 1.0});
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());  // the norm is known; the stores come later
  const Status status = rig.run(rig[0].engine().settle());
  EXPECT_EQ(status.code(), Code::kOutOfSpace);
  EXPECT_NE(status.message().find("step 1: update subgroup"), std::string::npos);
}

// Goal: state that could not be written whole makes the engine fail. Method: a full disk.
TEST(EngineErrors, AFailedWriteOfStateSticks) {
  Rig rig(options_for(1, DType::kFloat32, kHost, kNvme));
  std::vector<float> values(50, 1.0f);
  rig[0].disk().set_faults({.enospc = 1.0});
  Engine& engine = rig[0].engine();
  const Status status = rig.run(engine.write_state(1, Role::kExpAvg, bytes_of(values)));
  EXPECT_EQ(status.code(), Code::kOutOfSpace);
  EXPECT_EQ(engine.failure().to_string(), status.to_string());
}

// Goal: a subgroup without gradients does not travel. Method: only the small parameter, which lies
// in the second of two subgroups, is stepped; count the bytes of two moments, there and back.
TEST(EngineErrors, UntouchedSubgroupsStayHome) {
  Rig rig(options_for(1, DType::kFloat32, kHost, kNvme));
  StepReport report;
  ASSERT_TRUE(rig.run(step_with(rig[0], 1.0f, {1}, report)).ok());
  const EngineStats stats = rig[0].engine().stats();
  EXPECT_EQ(stats.loaded_bytes[static_cast<size_t>(TierKind::kNvme)], 2 * kNormChunk * 4);
  EXPECT_EQ(stats.stored_bytes[static_cast<size_t>(TierKind::kNvme)], 2 * kNormChunk * 4);
}

// Goal: a rank that fails wakes its peers. Method: one of two has a broken disk; the other waits in
// an all-gather.
TEST(EngineErrors, PeersHearOfAFailure) {
  RigOptions options = options_for(1, DType::kFloat32, kNvme, kHost);
  options.plan.world_size = 2;
  options.stall_timeout_ns = 1'000'000'000'000;  // not by the watchdog
  Rig rig(options);
  Rig::Run* runs[2] = {&rig.start(0, initialise(rig[0], 0, 1)),
                       &rig.start(1, initialise(rig[1], 0, 1))};
  for (Rig::Run* run : runs) ASSERT_TRUE(rig.finish(*run).ok());
  rig[0].disk().set_faults({.eio = 1.0});
  runs[1] = &rig.start(1, rig[1].hold(0));
  runs[0] = &rig.start(0, rig[0].hold(0));
  EXPECT_EQ(rig.finish(*runs[0]).code(), Code::kIoError);
  const Status peer = rig.finish(*runs[1]);
  EXPECT_EQ(peer.code(), Code::kCommError);
  EXPECT_NE(peer.message().find("rank 0 aborted"), std::string::npos);
  EXPECT_LT(rig.clock().now_ns(), options.stall_timeout_ns);
}

// Goal: ranks that ask for buckets in different orders are told, not given each other's weights.
// Method: equal buckets, so that the collectives themselves fit.
TEST(EngineErrors, RanksMustAskInOneOrder) {
  RigOptions options = options_for(2, DType::kFloat32, kHost, kHost);
  options.plan.world_size = 2;
  Rig rig(options);
  Rig::Run* passes[2] = {&rig.start(0, rig[0].pass({0, 1})), &rig.start(1, rig[1].pass({1, 0}))};
  for (Rig::Run* run : passes) ASSERT_TRUE(rig.finish(*run).ok());
  StepReport reports[2];
  Rig::Run* steps[2];
  for (uint32_t r = 0; r < 2; ++r) steps[r] = &rig.start(r, rig[r].step(0, reports[r]));
  for (Rig::Run* run : steps) {
    const Status status = rig.finish(*run);
    EXPECT_EQ(status.code(), Code::kCommError);
    EXPECT_NE(status.message().find("different orders"), std::string::npos);
  }
  for (uint32_t r = 0; r < 2; ++r) EXPECT_EQ(rig[r].engine().failure().code(), Code::kCommError);
}

// Goal: to step while a bucket is gathered is the user's mistake: an error that does not stick, in
// any world. Method: two ranks make it together, then do as they should.
TEST(EngineErrors, StepWhileLeasedDoesNotStick) {
  for (uint32_t world_size : {1u, 2u}) {
    RigOptions options = options_for(1, DType::kFloat32, kHost, kHost);
    options.plan.world_size = world_size;
    Rig rig(options);
    const auto all = [&](auto task_of) {
      std::vector<Rig::Run*> runs;
      for (uint32_t r = 0; r < world_size; ++r) runs.push_back(&rig.start(r, task_of(rig[r])));
      Status status;
      for (Rig::Run* run : runs) status = rig.finish(*run);
      return status;
    };
    std::vector<StepReport> reports(2);
    ASSERT_TRUE(all([](RigRank& rank) { return rank.hold(0); }).ok());
    const Status refused = all([&](RigRank& rank) { return rank.step(0, reports[0]); });
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_NE(refused.message().find("block0"), std::string::npos);
    for (uint32_t r = 0; r < world_size; ++r) EXPECT_TRUE(rig[r].let_go(0).ok());
    EXPECT_EQ(all([&](RigRank& rank) { return rank.step(0, reports[1]); }).to_string(), "ok");
    EXPECT_EQ(rig[0].engine().stats().step_count, 1u);
  }
}

// Goal: whoever fills every gradient slot and asks for one more is told; it does not stick. Method:
// two slots, three requests; then one is discarded.
TEST(EngineErrors, GradientSlotsExhausted) {
  Rig rig(options_for(1, DType::kFloat32, kHost, kHost));
  uint32_t slots[3] = {9, 9, 9};
  ASSERT_TRUE(rig.run(acquire(rig[0], slots[0])).ok());
  ASSERT_TRUE(rig.run(acquire(rig[0], slots[1])).ok());
  EXPECT_NE(slots[0], slots[1]);
  const Status refused = rig.run(acquire(rig[0], slots[2]));
  EXPECT_EQ(refused.code(), Code::kOutOfMemory);
  EXPECT_NE(refused.message().find("all 2 gradient slots"), std::string::npos);
  rig[0].engine().discard_gradients(slots[0]);
  EXPECT_TRUE(rig.run(acquire(rig[0], slots[2])).ok());
  EXPECT_EQ(slots[2], slots[0]);
  EXPECT_EQ(rig[0].engine().stats().gradient_slots_max, 2u);
}

// Goal: a slot that a reduce still uses is waited for, not refused. Method: hand in more buckets of
// gradients than there are slots.
TEST(EngineErrors, GradientSlotsComeBack) {
  Rig rig(options_for(4, DType::kFloat32, kHost, kHost));
  for (BucketId b = 0; b < 4; ++b) ASSERT_TRUE(rig.run(rig[0].give(b, 1.0f, {2 * b})).ok());
  StepReport report;
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  EXPECT_EQ(report.updated_params, 4u);
}

// Goal: what is asked of state that is not there is refused by name. Method: a master of fp32, a
// gradient, and a world of two.
TEST(EngineErrors, RefusesStateThatIsNotKept) {
  std::vector<float> memory(50);
  {
    Rig rig(options_for(1, DType::kFloat32, kHost, kHost));
    const Status master = rig.run(rig[0].engine().read_state(1, Role::kMaster, bytes_of(memory)));
    EXPECT_EQ(master.to_string(), "kInvalidArgument: b keeps no master");
    const Status grad = rig.run(rig[0].engine().write_state(1, Role::kGrad, bytes_of(memory)));
    EXPECT_EQ(grad.to_string(), "kInvalidArgument: b keeps no grad");
    EXPECT_TRUE(rig[0].engine().failure().ok());
  }
  RigOptions options = options_for(1, DType::kFloat32, kHost, kHost);
  options.plan.world_size = 2;
  Rig rig(options);
  const Status two = rig.run(rig[0].engine().read_state(1, Role::kParam, bytes_of(memory)));
  EXPECT_EQ(two.code(), Code::kUnsupported);
}

// ---- The watchdog

// Goal: when nothing moves, the error names who waits for what. Method: lease a bucket whose memory
// was never offered.
TEST(EngineErrors, WatchdogNamesWhatWaits) {
  Rig rig(options_for(1, DType::kFloat32, kHost, kHost));
  const Status status = rig.run(rig[0].engine().lease(0));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("nothing has moved for 1.00 s"), std::string::npos);
  EXPECT_NE(status.message().find("user: waits for the gather of bucket 0"), std::string::npos);
  EXPECT_FALSE(rig[0].engine().stuck());
}

// Goal: time in which nobody wants anything is no stall, and slow is not stopped. Method: idle for
// an hour; then a stream that is busy for many short whiles, less than the timeout each.
TEST(EngineErrors, WatchdogLeavesTheIdleAlone) {
  Rig rig(options_for(1, DType::kFloat32, kHost, kHost));
  for (int i = 0; i < 3600; ++i) {
    rig.clock().doze(1'000'000'000);
    rig.poll();
  }
  EXPECT_TRUE(rig.run(initialise(rig[0], 0, 1.0f)).ok());
}

// Goal: a drive that never answers is cancelled after one timeout, and the engine ends with that
// error, not stuck. Method: reads that never end.
TEST(EngineErrors, CancelsWhatNeverComes) {
  Rig rig(options_for(1, DType::kFloat32, kNvme, kHost));
  ASSERT_TRUE(rig.run(initialise(rig[0], 0, 1.0f)).ok());  // what was never stored is not read
  rig[0].disk().set_faults({.never = 1.0});
  const Status status = rig.run(rig[0].hold(0));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("the load of parameters"), std::string::npos);
  rig.drive([&] { return rig[0].engine().idle(); });
  EXPECT_FALSE(rig[0].engine().stuck());
  EXPECT_EQ(rig[0].engine().failure().to_string(), status.to_string());
}

// Goal: what not even cancel brings back makes the engine stuck, one timeout later. Method: a
// stream that is busy for a day, before memory is filled; tiers have nothing to cancel.
TEST(EngineErrors, StuckWhenCancelDoesNotHelp) {
  constexpr uint64_t kDayNs = 86'400'000'000'000;
  Rig rig(options_for(1, DType::kFloat32, kHost, kHost));
  rig[0].device().enqueue(0, kDayNs);
  Rig::Run& run = rig.start(0, rig[0].hold(0));
  rig.drive([&] { return !rig[0].engine().failure().ok(); });
  EXPECT_FALSE(rig[0].engine().stuck());
  rig.drive([&] { return rig[0].engine().stuck(); });
  EXPECT_LT(rig.clock().now_ns(), uint64_t{5'000'000'000});
  EXPECT_FALSE(rig[0].engine().idle());
  EXPECT_EQ(rig.finish(run).code(), Code::kTimeout);
}

}  // namespace
}  // namespace zoffload
