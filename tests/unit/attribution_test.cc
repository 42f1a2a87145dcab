#include "core/engine/attribution.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/operation.h"
#include "core/engine/slot_pool.h"
#include "core/sim/sim_clock.h"
#include "core/sim/sim_workers.h"
#include "tests/unit/flow_helpers.h"

namespace zoffload {
namespace {

// Two drives; an extent lies on the one that its offset's first page says.
class TwoPaths final : public Tier {
 public:
  TwoPaths() : Tier(TierKind::kNvme, 1 << 20) {}
  std::vector<TierPath> paths() const override { return {{"/a", 1000, 0}, {"/b", 0, 0}}; }
  uint32_t path_of(Extent extent) const override { return extent.offset == 0 ? 0 : 1; }

 protected:
  void do_load(Extent, HostSpan, Urgency, Completion&) override {}
  void do_store(HostSpan, Extent, Completion&) override {}
};

// The books of an engine without an engine: the test starts and ends operations itself.
class AttributionTest : public testing::Test {
 protected:
  static constexpr Extent kOnA{0, 3000};
  static constexpr Extent kOnB{kPageBytes, 500};

  static Plan make() {
    BucketSpec bucket;
    bucket.name = "layers.3";
    bucket.params = {{"w", 8 * kNormChunk, 0, {}}};
    PlanRequest request;
    request.params = {0, 1, 0};
    request.optimizer = {0, 0, 1};
    request.subgroup_bytes = 4 * kNormChunk * 12;
    return std::move(make_plan({bucket}, request).value());
  }
  void pass(uint64_t ns) { clock.doze(ns); }
  Operation& start(const char* what = "operation") {
    operations.emplace_back(what).start();
    return operations.back();
  }
  Operation& load(Extent extent, Role role = Role::kExpAvg) {
    Operation& operation = start();
    books.loading(1, role, TierKind::kNvme, extent, operation);
    return operation;
  }
  uint64_t busy(uint32_t resource) const { return books.spent().resources[resource].busy_ns; }
  uint64_t stalled(Cause cause) const { return books.spent().stall_ns[static_cast<size_t>(cause)]; }
  void tick() {
    noted.flows.tick();
    books.look_at_user(clock.now_ns());
  }
  static Task<Status> await(Operation& operation) {
    Status status = co_await operation;
    co_return status;
  }
  Task<Status> await_flow(FlowKey key, bool& over) {
    Status status = co_await Until(
        failure, [&over] { return over; }, "a flow", 0, WaitFor::flows(key.work, key.id));
    co_return status;
  }

  SimClock clock;
  Plan plan = make();
  NotedFlows noted;
  Failure failure;
  SimWorkers workers{clock, SimWorkersOptions{}, 1, nullptr};
  TwoPaths nvme;
  ResourceRates rates{{{1e9, 1e9, 0}}, 0, 0, 4e9};
  Attribution books{clock, plan, noted.flows, workers, &nvme, rates};
  std::deque<Operation> operations;
};

// Goal: a resource is busy while it has anything in flight, each path and direction by itself.
// Method: two loads that overlap and a store on one path, a load on the other.
TEST_F(AttributionTest, BusyIsTheUnionOfWhatIsInFlight) {
  Operation& first = load(kOnA);
  pass(10);
  Operation& second = load(kOnA, Role::kMaster);
  Operation& other = load(kOnB);
  pass(10);
  first.finish(Status());
  other.finish(Status());
  pass(10);
  EXPECT_EQ(busy(Resource::path_read(0)), 30u);  // up to now
  second.finish(Status());
  pass(100);
  Operation& store = start();
  books.storing(1, Role::kExpAvg, TierKind::kNvme, kOnA, store);
  pass(5);
  store.finish(Status());
  EXPECT_EQ(busy(Resource::path_read(0)), 30u);
  EXPECT_EQ(busy(Resource::path_write(0)), 5u);
  EXPECT_EQ(busy(Resource::path(0)), 35u);
  EXPECT_EQ(busy(Resource::path_read(1)), 10u);
  const Spent spent = books.spent();
  const auto nvme_index = static_cast<size_t>(TierKind::kNvme);
  EXPECT_EQ(spent.loaded_bytes[nvme_index][static_cast<size_t>(Role::kExpAvg)], 3500u);
  EXPECT_EQ(spent.loaded_bytes[nvme_index][static_cast<size_t>(Role::kMaster)], 3000u);
  EXPECT_EQ(spent.stored_bytes[nvme_index][static_cast<size_t>(Role::kExpAvg)], 3000u);
  EXPECT_EQ(spent.resources[Resource::path(0)].bytes, 9000u);
  EXPECT_EQ(spent.wall_ns, 135u);
  EXPECT_EQ(books.in_flight_count(), 0u);
}

// Goal: what follows a transfer is not the disk's, and an operation that was over at once counts
// its bytes. Method: a load whose sum takes 20 ns; a load that is done before the books hear of it.
TEST_F(AttributionTest, TheSumOfAnExtentIsNotTheDisks) {
  Operation& operation = load(kOnA);
  pass(10);
  operation.note_moved();
  pass(20);
  operation.note_moved();  // may be repeated
  operation.finish(Status());
  EXPECT_EQ(busy(Resource::path_read(0)), 10u);
  Operation& at_once = start();
  at_once.finish(Status());
  books.loading(1, Role::kParam, TierKind::kNvme, kOnA, at_once);
  EXPECT_EQ(busy(Resource::path_read(0)), 10u);
  EXPECT_EQ(books.spent().resources[Resource::path_read(0)].bytes, 6000u);
  Operation& zeros = start();  // nothing to read: only the CPU has a part in it
  zeros.note_moved();
  books.loading(1, Role::kParam, TierKind::kNvme, kOnA, zeros);
  pass(10);
  zeros.finish(Status());
  EXPECT_EQ(busy(Resource::path_read(0)), 10u);
}

// Goal: the user's wait is put down to what the flow it waits for waits for itself, and changes
// with it. Method: a verb waits for a gather, the gather for a child, the child for a load, first
// for the disk, then for its sum.
TEST_F(AttributionTest, AStallIsFollowedThroughFlows) {
  bool over = false;
  Operation& operation = load(kOnA);
  const auto parent = [&]() -> Task<Status> {
    OperationSet pieces("pieces");
    noted.flows.spawn("fetch", await(operation), &pieces.add());
    Status status = co_await pieces.all();
    over = true;
    co_return status;
  };
  noted.flows.spawn("lease", await_flow({Work::kGather, 7}, over), nullptr, {Work::kVerb});
  bool never = false;
  noted.flows.spawn("gather 6", await_flow({Work::kReduce}, never), nullptr, {Work::kGather, 6});
  noted.flows.spawn("gather 7", parent(), nullptr, {Work::kGather, 7});
  tick();
  pass(10);
  operation.note_moved();
  tick();
  pass(3);
  operation.finish(Status());
  tick();  // fetch, then the gather, then the verb
  tick();
  tick();
  pass(50);
  EXPECT_EQ(stalled(Cause::kDisk), 10u);
  EXPECT_EQ(stalled(Cause::kCpu), 3u);
  EXPECT_EQ(books.spent().stalled_ns(), 13u);
  never = true;
  tick();
}

// Goal: a wait with a cause of its own has that, one for flows that are not there is the engine's.
// Method: a verb that waits for a slot, and one for an update, with none in flight.
TEST_F(AttributionTest, SlotsAndTheEngineItselfAreCauses) {
  SlotPool pool("test", 1, failure);
  const auto take = [&]() -> Task<Status> {
    auto slot = co_await pool.acquire();
    co_return slot.status();
  };
  auto lent = std::make_unique<SlotPool::Acquire>(pool);
  ASSERT_TRUE(lent->ready());
  auto slot = std::make_unique<SlotPool::Slot>(std::move(*lent->await_resume()));
  noted.flows.spawn("verb", take(), nullptr, {Work::kVerb});
  tick();
  pass(4);
  slot.reset();
  lent.reset();
  tick();
  bool over = false;
  noted.flows.spawn("verb", await_flow({Work::kUpdate}, over), nullptr, {Work::kVerb});
  tick();
  pass(6);
  over = true;
  tick();
  EXPECT_EQ(stalled(Cause::kSlot), 4u);
  EXPECT_EQ(stalled(Cause::kEngine), 6u);
}

// Goal: reports never overlap and leave nothing out. Method: two steps and a settle() with a load
// and a stall across each end; their sum is the total.
TEST_F(AttributionTest, ReportsAddUp) {
  bool over = false;
  noted.flows.spawn("verb", await_flow({Work::kUpdate}, over), nullptr, {Work::kVerb});
  Operation& operation = load(kOnA);
  tick();
  pass(10);
  books.enter_step();
  pass(5);
  books.end_step();
  Spent sum = books.last_step();
  EXPECT_EQ(sum.wall_ns, 15u);
  EXPECT_EQ(sum.step_ns, 5u);
  EXPECT_EQ(sum.resources[Resource::path_read(0)].busy_ns, 15u);
  EXPECT_EQ(sum.stalled_ns(), 15u);
  pass(20);
  books.enter_step();
  books.end_step();
  EXPECT_EQ(books.last_step().wall_ns, 20u);
  books.enter_step();
  pass(7);
  operation.finish(Status());
  books.settled();
  EXPECT_EQ(books.last_step().wall_ns, 27u);
  EXPECT_EQ(books.last_step().step_ns, 7u);
  EXPECT_EQ(books.last_step().resources[Resource::path_read(0)].bytes, 3000u);
  EXPECT_EQ(books.step_count(), 2u);
  sum += books.last_step();
  const Spent total = books.spent();
  EXPECT_EQ(sum.wall_ns, total.wall_ns);
  EXPECT_EQ(sum.stall_ns, total.stall_ns);
  EXPECT_EQ(sum.loaded_bytes, total.loaded_bytes);
  over = true;
  tick();
}

class NoWork : public Job {
 public:
  void run() override {}
};

// Goal: the bounds are the profile's where it knows, else what the run has shown, and the user's
// own time is one of them. Method: a load on a path with rates and one without; an update.
TEST_F(AttributionTest, BoundsComeFromRatesOrFromTheRun) {
  Operation& known = load(kOnA);
  Operation& unknown = load(kOnB);
  pass(1000);
  known.finish(Status());
  unknown.finish(Status());
  NoWork job;
  Operation& work = start();
  const auto update = [&]() -> Task<Status> {
    books.working(job, work);
    Status status = co_await await(work);
    co_return status;
  };
  noted.flows.spawn("update", update(), nullptr, {Work::kUpdate, 0});
  tick();
  pass(100);
  work.finish(Status());
  tick();
  const Spent spent = books.spent();
  // fp32, all of the subgroup's 16384: gradient once; weights and two moments both ways.
  EXPECT_EQ(spent.resources[Resource::kUpdate].bytes, 16384u * 4 * 7);
  EXPECT_EQ(spent.resources[Resource::kUpdate].busy_ns, 100u);
  std::map<std::string, double> seconds;
  for (const Bound& bound : books.bounds(spent)) seconds[bound.resource] = bound.seconds;
  EXPECT_DOUBLE_EQ(seconds["disk /a"], 3e-6);
  EXPECT_DOUBLE_EQ(seconds["disk /b"], 1e-6);
  EXPECT_DOUBLE_EQ(seconds["memory"], 16384 * 4 * 7 / 4e9);
  EXPECT_EQ(seconds.size(), 3u);
}

// Goal: events have names that a user understands, on the resource they were on, and an operation
// in flight at the end is cut. Method: a load that ends, a copy by a flow that does not, a wait.
TEST_F(AttributionTest, TracesWhatHappened) {
  books.start_trace(10);
  Operation& ended = load(kOnA);
  bool over = false;
  noted.flows.spawn("verb", await_flow({Work::kUpdate}, over), nullptr, {Work::kVerb});
  Operation& copy = start();
  const auto fetch = [&]() -> Task<Status> {
    books.copying(Resource::kLinkUp, 64, copy);
    Status status = co_await await(copy);
    co_return status;
  };
  noted.flows.spawn("fetch subgroup 1 of layers.3", fetch());
  tick();
  pass(10);
  ended.finish(Status());
  over = true;
  tick();
  pass(5);
  books.stop_trace();
  copy.finish(Status());
  tick();
  const auto events = books.trace().take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name.text(), "load exp_avg of layers.3, subgroup 1");
  EXPECT_EQ(events[0].track, Resource::path_read(0));
  EXPECT_EQ(events[0].bytes, 3000u);
  EXPECT_EQ(events[1].name.text(), "wait for the engine");
  EXPECT_EQ(events[1].track, StepTrace::kUser);
  EXPECT_EQ(events[1].end_ns - events[1].begin_ns, 10u);
  EXPECT_EQ(events[2].name.text(), "copy: fetch subgroup 1 of layers.3");
  EXPECT_EQ(events[2].end_ns - events[2].begin_ns, 15u);
  EXPECT_EQ(books.resource_names()[Resource::path_read(0)], "disk read /a");
}

}  // namespace
}  // namespace zoffload
