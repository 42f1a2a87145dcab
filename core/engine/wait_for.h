// What a parked flow waits for, in terms of the books (attribution.h): a cause of its own, an
// operation in flight, or other flows, whose own waits are then looked at.
#pragma once

#include <cstdint>

namespace zoffload {

// Why the user's thread stood still in one of our verbs.
enum class Cause : uint8_t {
  kDisk,
  kLink,    // copies between host and device
  kCpu,     // a worker
  kTurn,    // other ranks
  kSlot,    // a free buffer
  kUser,    // work that the user had enqueued on a stream
  kEngine,  // none of these: the control thread itself
};
inline constexpr uint32_t kCauseCount = 7;
const char* cause_name(Cause cause);  // "disk"

// What a flow is there for, so that others can be asked about it. Children need no work of their
// own: they are found through the flow that spawned them.
enum class Work : uint8_t { kNone, kVerb, kGather, kReduce, kUpdate, kWriteBack };
struct FlowKey {
  static constexpr uint32_t kAny = ~0u;

  Work work = Work::kNone;
  uint32_t id = kAny;  // a bucket; of an update, a subgroup

  bool matches(const FlowKey& wanted) const {
    return work == wanted.work && (wanted.id == kAny || id == wanted.id);
  }
};

struct WaitFor {
  enum class Kind : uint8_t { kCause, kOperation, kChildren, kWork };

  Kind kind = Kind::kCause;
  Cause cause = Cause::kEngine;
  uint32_t ticket = 0;  // of the operation, with Attribution
  FlowKey work = {};    // of the oldest flow that does it

  static WaitFor leaf(Cause cause) { return {Kind::kCause, cause, 0, {}}; }
  static WaitFor flows(Work work, uint32_t id = FlowKey::kAny) {
    return {Kind::kWork, Cause::kEngine, 0, {work, id}};
  }
  // An operation that nobody observes is finished by a flow that was spawned for it.
  static WaitFor operation(uint32_t ticket) {
    return {ticket == 0 ? Kind::kChildren : Kind::kOperation, Cause::kEngine, ticket, {}};
  }
};

}  // namespace zoffload
