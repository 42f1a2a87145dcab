// The engine when verbs overlap: gathers ahead, updates under way, callers who gave up, the end.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/sim/trace.h"
#include "tests/unit/engine_tasks.h"

namespace zoffload {
namespace {

Task<Status> prepare_only(RigRank& rank, BucketId bucket) {
  auto orders = co_await rank.engine().prepare(bucket);
  co_return orders.status();
}

// Goal: what was gathered ahead does not outlive the step that changes it. Method: learn a pass,
// break the next one off while a bucket is gathered ahead, step that bucket, and look at it.
TEST(EngineOrder, NothingGatheredAheadIsStaleAfterAStep) {
  Rig rig(options_for(2, DType::kFloat32, kHost, kHost));
  for (BucketId b = 0; b < 2; ++b) ASSERT_TRUE(rig.run(initialise(rig[0], b, 2.0f)).ok());
  ASSERT_TRUE(rig.run(rig[0].pass({0, 1})).ok());
  ASSERT_TRUE(rig.run(rig[0].pass({0})).ok());  // 1 is gathered ahead
  EXPECT_TRUE(rig[0].has_memory(1));
  ASSERT_TRUE(rig.run(rig[0].give(1, 1.0f, {2})).ok());
  StepReport report;
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  std::vector<float> weights;
  ASSERT_TRUE(rig.run(copy_param(rig[0], 2, weights)).ok());
  EXPECT_LT(weights[0], 1.95f);
}

// Goal: the tier learns which loads somebody waits for: the parameters of the bucket that the user
// asks for and the state that the user reads, not what is gathered ahead, and no update. Method:
// the bytes that were loaded on demand, after each of them.
TEST(EngineOrder, OnlyWhatTheUserWaitsForIsDemanded) {
  RigOptions options = options_for(2, DType::kFloat32, kNvme, kNvme);
  options.plan.prefetch = 1;
  Rig rig(options);
  const auto demanded = [&rig] {
    return rig[0].engine().stats().demanded_bytes[static_cast<size_t>(TierKind::kNvme)];
  };
  const auto loaded = [&rig] {
    return rig[0].engine().stats().loaded_bytes[static_cast<size_t>(TierKind::kNvme)];
  };
  const uint64_t bucket_bytes = rig[0].layout().buckets[0].bytes();
  ASSERT_TRUE(rig.run(rig[0].pass({0, 1})).ok());  // learned: all on demand
  EXPECT_EQ(demanded(), loaded());
  EXPECT_EQ(demanded(), 2 * bucket_bytes);
  ASSERT_TRUE(rig.run(rig[0].drop_all()).ok());
  rig[0].engine().begin_pass(1);
  ASSERT_TRUE(rig.run(rig[0].hold(0)).ok());
  rig.drive([&rig] { return rig[0].engine().idle(); });  // 1 is gathered ahead
  EXPECT_EQ(loaded(), 4 * bucket_bytes);
  EXPECT_EQ(demanded(), 3 * bucket_bytes);
  ASSERT_TRUE(rig[0].let_go(0).ok());

  ASSERT_TRUE(rig.run(rig[0].give(0, 1.0f, {0, 1})).ok());
  StepReport report;
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  ASSERT_TRUE(rig.run(rig[0].engine().settle()).ok());
  EXPECT_GT(loaded(), 4 * bucket_bytes);
  EXPECT_EQ(demanded(), 3 * bucket_bytes);
  std::vector<float> moments(50);
  ASSERT_TRUE(rig.run(rig[0].engine().read_state(1, Role::kExpAvg, bytes_of(moments))).ok());
  EXPECT_GT(demanded(), 3 * bucket_bytes);
}

// Goal: state may be read while its bucket is gathered ahead: they take turns at the home. Method:
// the homes are on a disk, which allows one operation on an extent at a time.
TEST(EngineOrder, StateMayBeReadDuringAGather) {
  Rig rig(options_for(2, DType::kFloat32, kNvme, kHost));
  for (BucketId b = 0; b < 2; ++b) ASSERT_TRUE(rig.run(initialise(rig[0], b, 2.0f)).ok());
  ASSERT_TRUE(rig.run(rig[0].pass({0, 1})).ok());
  rig[0].engine().begin_pass(1);
  ASSERT_TRUE(rig.run(rig[0].ask(0)).ok());  // both are on their way
  std::vector<float> weights(50);
  ASSERT_TRUE(rig.run(rig[0].engine().read_state(3, Role::kParam, bytes_of(weights))).ok());
  EXPECT_EQ(weights, std::vector<float>(50, 2.0f));
  ASSERT_TRUE(rig.run(rig[0].engine().lease(0)).ok());
}

// Goal: updates run in the order in which the next forward needs the buckets. Method: a pass that
// asks for the last bucket first; the watchdog's list of flows is in spawn order.
TEST(EngineOrder, UpdatesFollowTheNextForward) {
  RigOptions options = options_for(3, DType::kFloat32, kNvme, kNvme);
  Rig rig(options);
  ASSERT_TRUE(rig.run(rig[0].pass({2, 0})).ok());
  rig[0].engine().begin_pass(1);
  StepReport report;
  for (BucketId b = 0; b < 3; ++b) ASSERT_TRUE(rig.run(rig[0].give(b, 1.0f, {2 * b})).ok());
  rig[0].disk().set_faults({.never = 1.0});
  static_cast<void>(rig.run(rig[0].step(0, report)));
  const Status status = rig.run(rig[0].engine().settle());
  const std::string& text = status.message();
  const size_t first = text.find("of block2"), second = text.find("of block0");
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_LT(first, second);
  EXPECT_LT(second, text.find("of block1"));
}

// A model at level 1: buckets of one subgroup, all of whose weights and gradients are 1.
struct InPlace {
  explicit InPlace(uint32_t count)
      : weights(count, std::vector<float>(kNormChunk, 1.0f)),
        gradients(count, std::vector<float>(kNormChunk, 1.0f)) {
    for (uint32_t b = 0; b < count; ++b) {
      BucketSpec bucket;
      bucket.name = "block" + std::to_string(b);
      bucket.in_place = true;
      bucket.params = {{"w", kNormChunk, 0, bytes_of(weights[b])}};
      options.model.push_back(bucket);
      presented.push_back({b, bytes_of(gradients[b])});
    }
    options.plan.params = kHost;
    options.plan.optimizer = kNvme;
    options.plan.subgroup_bytes = kNormChunk * 8;
  }
  bool updated(ParamId param) const { return weights[param].back() != 1.0f; }

  std::vector<std::vector<float>> weights, gradients;
  std::vector<Engine::InPlaceGradient> presented;
  RigOptions options;
};

// Goal: who waits for some parameters waits for exactly these: it goes on while others are still on
// their way, which are updated in the order that was asked for. Method: more buckets than slots, on
// a disk, in the reverse order; the weights of the one waited for and of the last, and the engine's
// counter.
TEST(EngineOrder, SettlesTheParametersThatAreAskedFor) {
  InPlace model(12);
  Rig rig(model.options);
  Engine& engine = rig[0].engine();
  engine.set_update_order({11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
  ASSERT_TRUE(engine.present(model.presented, false).ok());
  StepReport report;
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  EXPECT_EQ(engine.stats().unsettled_count, 12u);
  ASSERT_TRUE(rig.run(engine.settle_params({11, 10})).ok());
  EXPECT_TRUE(model.updated(11) && model.updated(10));
  EXPECT_FALSE(model.updated(0));
  EXPECT_GT(engine.stats().unsettled_count, 0u);
  EXPECT_LT(engine.stats().unsettled_count, 11u);
  ASSERT_TRUE(rig.run(engine.settle_params({0})).ok());
  EXPECT_TRUE(model.updated(0));
  ASSERT_TRUE(rig.run(engine.settle()).ok());
  EXPECT_EQ(engine.stats().unsettled_count, 0u);
}

// Goal: who waits for an update that failed is told, and in which step that was. Method: the disk
// fails all writes of the second step.
TEST(EngineOrder, WaitingForAFailedUpdateIsAnError) {
  InPlace model(2);
  Rig rig(model.options);
  Engine& engine = rig[0].engine();
  StepReport report;
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(rig.run(engine.settle_params({0, 1})).ok());
    ASSERT_TRUE(engine.present(model.presented, false).ok());
    if (step == 1) rig[0].disk().set_faults({.enospc = 1.0});
    ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  }
  const Status status = rig.run(engine.settle_params({1}));
  EXPECT_EQ(status.code(), Code::kOutOfSpace);
  EXPECT_NE(status.message().find("step 2: update subgroup 0 of block"), std::string::npos);
}

// Goal: step() does not wait for the last gradients before it reads state, nor for the norm; the
// arithmetic does. Method: a device from which gradients take long; in the trace, the first read
// begins before the last copy of gradients ends, the first job of an update after it.
TEST(EngineOrder, StateIsReadWhileGradientsAreReduced) {
  Trace trace(100'000);
  RigOptions options = options_for(3, DType::kFloat32, kNvme, kNvme);
  options.device.latency_ns = 10'000'000;
  options.trace = &trace;
  Rig rig(options);
  StepReport report;
  uint64_t start = 0;
  for (int step = 0; step < 2; ++step) {  // what was never stored is not read
    start = rig.clock().now_ns();
    for (BucketId b = 0; b < 3; ++b) ASSERT_TRUE(rig.run(rig[0].give(b, 1.0f, {2 * b})).ok());
    ASSERT_TRUE(rig.run(rig[0].step(1.0, report)).ok());
    if (step == 1) break;
    ASSERT_TRUE(rig.run(rig[0].engine().settle()).ok());
  }
  const uint64_t decided = rig.clock().now_ns();
  EXPECT_GT(rig[0].engine().stats().unsettled_count, 0u);  // step() returned, updates run on
  ASSERT_TRUE(rig.run(rig[0].engine().settle()).ok());

  uint64_t first_read = 0, last_gradient = 0, first_write = 0;
  for (const std::string& line : trace.last_lines()) {
    const uint64_t time = std::stoull(line);
    if (time < start) continue;
    const auto has = [&line](const char* text) { return line.find(text) != std::string::npos; };
    if (has("disk start") && has(" read ") && first_read == 0) first_read = time;
    if (has("disk start") && has(" write ") && first_write == 0) first_write = time;
    if (has("device end")) last_gradient = time;
  }
  ASSERT_GT(first_read, 0u);
  EXPECT_LT(first_read, last_gradient);
  EXPECT_LE(last_gradient, decided);
  EXPECT_LT(decided, first_write);
}

// Goal: a gather waits for the updates of its own bucket, which come first where the forward begins
// with it. Method: hold the bucket that the last pass began with, right after a step; others are
// still on their way.
TEST(EngineOrder, AGatherWaitsForItsOwnBucket) {
  RigOptions options = options_for(12, DType::kFloat32, kNvme, kNvme);
  options.plan.prefetch = 0;
  Rig rig(options);
  for (BucketId b : {11u, 0u}) ASSERT_TRUE(rig.run(initialise(rig[0], b, 2.0f)).ok());
  ASSERT_TRUE(rig.run(rig[0].pass({11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})).ok());
  ASSERT_TRUE(rig.run(rig[0].drop_all()).ok());
  rig[0].engine().begin_pass(1);
  StepReport report;
  for (BucketId b = 0; b < 12; ++b) ASSERT_TRUE(rig.run(rig[0].give(b, 1.0f, {2 * b})).ok());
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  ASSERT_TRUE(rig.run(rig[0].hold(11)).ok());
  EXPECT_LT(rig[0].values<float>(22)[0], 1.95f);
  EXPECT_GT(rig[0].engine().stats().unsettled_count, 12u);  // of 24 subgroups
  EXPECT_TRUE(rig[0].let_go(11).ok());
}

// Goal: state written while its bucket is gathered ahead is the truth of the next gather. Method:
// as above, then gather it anew.
TEST(EngineOrder, StateMayBeWrittenDuringAGather) {
  Rig rig(options_for(2, DType::kFloat32, kNvme, kHost));
  for (BucketId b = 0; b < 2; ++b) ASSERT_TRUE(rig.run(initialise(rig[0], b, 2.0f)).ok());
  ASSERT_TRUE(rig.run(rig[0].pass({0, 1})).ok());
  rig[0].engine().begin_pass(1);
  ASSERT_TRUE(rig.run(rig[0].ask(0)).ok());
  std::vector<float> weights(50, 3.0f), gathered;
  ASSERT_TRUE(rig.run(rig[0].engine().write_state(3, Role::kParam, bytes_of(weights))).ok());
  ASSERT_TRUE(rig.run(rig[0].drop_all()).ok());
  ASSERT_TRUE(rig.run(copy_param(rig[0], 3, gathered)).ok());
  EXPECT_EQ(gathered, weights);
}

// Goal: what is never trained may stay gathered over a step. Method: lease it and step.
TEST(EngineOrder, StepWhileAFrozenBucketIsLeased) {
  RigOptions options = options_for(2, DType::kFloat32, kHost, kHost);
  options.model[1].trainable = false;
  Rig rig(options);
  StepReport report;
  ASSERT_TRUE(rig.run(rig[0].hold(1)).ok());
  ASSERT_TRUE(rig.run(rig[0].give(0, 1.0f, {0})).ok());
  EXPECT_EQ(rig.run(rig[0].step(0, report)).to_string(), "ok");
  EXPECT_TRUE(rig[0].let_go(1).ok());
}

// Goal: a rank that is done and closes does not disturb a peer that is still at it. Method: both
// step; one drains at once, its updates still running; the other goes on to its end.
TEST(EngineOrder, DrainLeavesPeersAlone) {
  RigOptions options = options_for(1, DType::kFloat32, kNvme, kNvme);
  options.plan.world_size = 2;
  Rig rig(options);
  StepReport reports[2];
  Rig::Run* given[2];
  for (uint32_t r = 0; r < 2; ++r) given[r] = &rig.start(r, rig[r].give(0, 1.0f, {0, 1}));
  for (Rig::Run* run : given) ASSERT_TRUE(rig.finish(*run).ok());
  Rig::Run* steps[2];
  for (uint32_t r = 0; r < 2; ++r) steps[r] = &rig.start(r, rig[r].step(0, reports[r]));
  for (Rig::Run* run : steps) ASSERT_TRUE(rig.finish(*run).ok());
  ASSERT_FALSE(rig[0].engine().idle());  // updates run
  rig[0].engine().drain();
  rig.drive([&] { return rig[0].engine().idle() && rig[1].engine().idle(); });
  EXPECT_TRUE(rig[0].engine().failure().ok());
  std::vector<float> memory(50);
  EXPECT_EQ(rig.run(rig[0].engine().settle()).to_string(), "ok");  // it did not even fail itself
}

// Goal: nor does it when a gather ahead is still under way: the peers need its part. Method: both
// lease a bucket with the next on its way; one closes, the other goes on to the next.
TEST(EngineOrder, DrainFinishesGathersForItsPeers) {
  RigOptions options = options_for(2, DType::kFloat32, kNvme, kHost);
  options.plan.world_size = 2;
  Rig rig(options);
  const auto both = [&](auto task_of) {
    Rig::Run* runs[2] = {&rig.start(0, task_of(rig[0])), &rig.start(1, task_of(rig[1]))};
    for (Rig::Run* run : runs) EXPECT_EQ(rig.finish(*run).to_string(), "ok");
  };
  for (int i = 0; i < 2; ++i) both([](RigRank& rank) { return rank.pass({0, 1}); });
  for (uint32_t r = 0; r < 2; ++r) rig[r].engine().begin_pass(1);
  both([](RigRank& rank) { return rank.hold(0); });
  ASSERT_FALSE(rig[0].engine().idle());  // the next is on its way
  rig[0].engine().drain();
  EXPECT_EQ(rig.finish(rig.start(1, rig[1].hold(1))).to_string(), "ok");
}

// Goal: drain lets updates reach their homes, and ends what waits for a user who will not come;
// that is no failure of the run. Method: a lease that is never offered, and a step under way.
TEST(EngineOrder, DrainEndsWhatStillWaits) {
  RigOptions options = options_for(2, DType::kFloat32, kNvme, kNvme);
  options.stall_timeout_ns = 1'000'000'000'000;
  Rig rig(options);
  StepReport report;
  ASSERT_TRUE(rig.run(rig[0].give(0, 1.0f, {0, 1})).ok());
  ASSERT_TRUE(rig.run(rig[0].step(0, report)).ok());
  Rig::Run& waiting = rig.start(0, rig[0].engine().lease(1));
  rig[0].engine().drain();
  const Status told = rig.finish(waiting);
  EXPECT_EQ(told.code(), Code::kInvalidArgument);
  EXPECT_NE(told.message().find("the engine is closed"), std::string::npos);
  rig.drive([&] { return rig[0].engine().idle(); });
  EXPECT_TRUE(rig[0].engine().failure().ok());
  EXPECT_LT(rig.clock().now_ns(), options.stall_timeout_ns);
  EXPECT_GE(rig[0].engine().stats().stored_bytes[static_cast<size_t>(TierKind::kNvme)],
            3 * 2 * kNormChunk * 4);
}

// Goal: a prepare whose caller has given up does no harm to what the user does next. Method: leave
// one waiting for gathers ahead, and run the pass that uses them.
TEST(EngineOrder, AbandonedPrepareDoesNoHarm) {
  RigOptions options = options_for(4, DType::kFloat32, kNvme, kHost);
  options.plan.prefetch = 1;
  Rig rig(options);
  for (BucketId b = 0; b < 4; ++b) ASSERT_TRUE(rig.run(initialise(rig[0], b, 2.0f)).ok());
  for (uint64_t signature : {1, 2}) {
    ASSERT_TRUE(rig.run(rig[0].pass({0, 1, 2}, signature)).ok());
  }
  rig[0].engine().begin_pass(2);
  ASSERT_TRUE(rig.run(rig[0].ask(0)).ok());                     // 0 and 1 are on their way
  Rig::Run& abandoned = rig.start(0, prepare_only(rig[0], 3));  // waits for both
  rig.poll();
  ASSERT_FALSE(abandoned.done.done());
  EXPECT_EQ(rig.run(rig[0].pass({0, 1, 2})).to_string(), "ok");
  rig.drive([&] { return abandoned.done.done(); });
}

}  // namespace
}  // namespace zoffload
