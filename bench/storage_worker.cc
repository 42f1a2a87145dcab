#include "bench/storage_worker.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "bench/numa.h"
#include "core/base/noise.h"
#include "core/base/types.h"

namespace zoffload::bench {
namespace {

constexpr uint64_t kFillBlockBytes = uint64_t{4} << 20;
constexpr uint32_t kFillDepth = 8;
constexpr uint64_t kStampStride = 64 << 10;  // a stamp is a cache miss

}  // namespace

StorageWorker::StorageWorker(const WorkerSetup& setup, Context& context, std::atomic<bool>& halt)
    : setup_(setup), context_(context), halt_(halt), random_(setup.seed) {}

StorageWorker::~StorageWorker() = default;

Status StorageWorker::set_up() {
  // First: memory comes from the node of the thread that touches it.
  if (setup_.numa_node >= 0) {
    const Status bound = bind_thread_to_node(setup_.numa_node);
    if (!bound.ok() && setup_.numa_required) return bound;
  }
  IoQueueOptions options;
  options.depth = setup_.depth_max;
  options.want_direct = setup_.want_direct;
  options.direct_expected = setup_.direct_expected;
  ZO_ASSIGN_OR_RETURN(ChosenQueue chosen, open_queue(setup_.engine, options));
  queue_ = std::move(chosen.queue);
  if (queue_->depth() < setup_.depth_max) {
    return Status(Code::kUnsupported, "a queue depth of " + std::to_string(setup_.depth_max) +
                                          " is more than " + queue_->name() +
                                          " gives here: " + std::to_string(queue_->depth()));
  }
  ZO_ASSIGN_OR_RETURN(pool_, device_.allocate_pinned(setup_.pool_bytes));
  fill_with_noise(pool_, setup_.seed);
  if (setup_.fixed_buffers) {
    ZO_ASSIGN_OR_RETURN(why_unregistered_, queue_->register_arena(pool_));
  }
  ZO_ASSIGN_OR_RETURN(File file,
                      File::create_unnamed(setup_.path, setup_.file_bytes, setup_.want_direct));
  ZO_TRY(queue_->accepts(file));
  direct_ = file.direct();
  why_buffered_ = file.why_buffered();
  pump_ = std::make_unique<RequestPump>(*queue_, queue_->adopt(std::move(file)), pool_);
  if (setup_.verify) sums_.resize(setup_.file_bytes / kPageBytes);
  return Status();
}

Status StorageWorker::fill() {
  // The largest block that divides the file, so that all of it is written.
  uint64_t block_bytes = kPageBytes;
  while (block_bytes < kFillBlockBytes && setup_.file_bytes % (2 * block_bytes) == 0 &&
         2 * block_bytes <= pool_.size()) {
    block_bytes *= 2;
  }
  const uint64_t fitting = pool_.size() / block_bytes;
  const uint64_t depth = std::min<uint64_t>({kFillDepth, setup_.depth_max, fitting});
  filling_ = true;
  load_ = {};
  load_.read_share = 0;
  const Status status = pump(block_bytes, static_cast<uint32_t>(depth));
  filling_ = false;
  return status;
}

Status StorageWorker::run(const WorkerLoad& load) {
  load_ = load;
  return pump(load.block_bytes, load.depth);
}

Status StorageWorker::pump(uint64_t block_bytes, uint32_t depth) {
  load_.block_bytes = block_bytes;
  block_count_ = setup_.file_bytes / block_bytes;
  if (filling_ || cursor_ >= block_count_) cursor_ = 0;
  sample_ = {};
  stopping_ = false;
  if (setup_.verify) busy_.assign(block_count_, false);
  const Status status = pump_->run(*this, block_bytes, depth);
  if (!status.ok()) halt_ = true;
  const std::chrono::duration<double> measured = stopped_ - load_.measure_from;
  if (!filling_) sample_.seconds = std::max(measured.count(), 0.0);
  return status.within(setup_.path);
}

bool StorageWorker::next(SteadyTime now, BlockRequest& request) {
  if (!stopping_) {
    const bool finished = filling_ ? cursor_ == block_count_ : now >= load_.end;
    const bool told = halt_.load(std::memory_order_relaxed) || context_.stop() != Stop::kNone;
    stopping_ = finished || told;
    if (stopping_) stopped_ = finished && !filling_ ? load_.end : now;
  }
  if (stopping_) return false;
  request.write = load_.read_share < 1 && !random_.chance(load_.read_share);
  if (!choose_block(request)) return false;
  if (request.write && context_.may_write(load_.block_bytes, load_.block_bytes) == 0) {
    stopping_ = true;
    stopped_ = now;
    return false;
  }
  if (setup_.verify) busy_[request.offset / load_.block_bytes] = true;
  return true;
}

// Sets the offset. With `verify` no block is in flight twice: a read beside a write of the same
// bytes may see either. False: every block is in flight.
bool StorageWorker::choose_block(BlockRequest& request) {
  uint64_t block = load_.random ? random_.below(block_count_) : cursor_;
  if (setup_.verify) {
    for (uint64_t tried = 0; busy_[block]; ++tried) {
      if (tried == block_count_) return false;
      block = (block + 1) % block_count_;
    }
  }
  if (!load_.random) cursor_ = filling_ ? block + 1 : (block + 1) % block_count_;
  request.offset = block * load_.block_bytes;
  return true;
}

// The pool holds noise, and what is read into it is noise too. Stamps make blocks that share a
// buffer unlike each other, so that no drive can find equal ones; to check them, every page has
// one.
void StorageWorker::prepare(const BlockRequest& request, HostSpan memory) {
  const uint64_t stride = setup_.verify ? kPageBytes : kStampStride;
  for (uint64_t offset = 0; offset < memory.size(); offset += stride) {
    const uint64_t stamp[2] = {setup_.seed, ++stamp_};
    std::memcpy(memory.data() + offset, stamp, sizeof stamp);
    if (!setup_.verify) continue;
    sums_[(request.offset + offset) / kPageBytes] = XXH3_64bits(memory.data() + offset, kPageBytes);
  }
}

Status StorageWorker::finished(const BlockRequest& request, HostSpan memory, SteadyTime submitted,
                               SteadyTime now) {
  const bool measured = !filling_ && now >= load_.measure_from && now <= load_.end;
  if (measured) {
    (request.write ? sample_.written_bytes : sample_.read_bytes) += memory.size();
    const auto latency = std::chrono::duration_cast<std::chrono::nanoseconds>(now - submitted);
    sample_.latency_ns.add(static_cast<uint64_t>(latency.count()));
  }
  if (measured || filling_) {
    moved_bytes_.store(moved_bytes() + memory.size(), std::memory_order_relaxed);
  }
  if (!setup_.verify) return Status();
  busy_[request.offset / load_.block_bytes] = false;
  if (request.write) return Status();
  ++sample_.checked_blocks;
  return check(request, memory);
}

Status StorageWorker::check(const BlockRequest& request, HostSpan memory) {
  for (uint64_t offset = 0; offset < memory.size(); offset += kPageBytes) {
    const uint64_t sum = XXH3_64bits(memory.data() + offset, kPageBytes);
    if (sum == sums_[(request.offset + offset) / kPageBytes]) continue;
    return Status(Code::kCorruption,
                  "the " + std::to_string(kPageBytes) + " bytes read at offset " +
                      std::to_string(request.offset + offset) + " are not those written there");
  }
  return Status();
}

}  // namespace zoffload::bench
