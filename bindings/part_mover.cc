#include "bindings/part_mover.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/types.h"

namespace zoffload {
namespace {

bool at_page_boundary(HostSpan memory) {
  return reinterpret_cast<uintptr_t>(memory.data()) % kPageBytes == 0;
}

}  // namespace

PartMover::Range PartMover::Range::take(uint64_t bytes) {
  const uint64_t taken = std::min<uint64_t>(bytes, memory.size());
  const Range head{offset, memory.first(taken)};
  offset += taken;
  memory = memory.subspan(taken);
  return head;
}

PartMover::PartMover(FileQueue& queue, uint64_t block_bytes, HostSpan staging)
    : queue_(queue),
      block_bytes_(block_bytes),
      transfers_(queue, block_bytes),
      blocks_(staging.size() / block_bytes) {
  ZO_CHECK(block_bytes % kPageBytes == 0);
  ZO_CHECK(!blocks_.empty());
  ZO_CHECK(at_page_boundary(staging));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].memory = staging.subspan(i * block_bytes, block_bytes);
  }
}

PartMover::~PartMover() { ZO_CHECK(idle()); }

// [100, 9000) of a file is an edge [100, 4096), the page [4096, 8192) and an edge [8192, 9000).
void PartMover::add(FilePart part) {
  Job& job = jobs_.emplace_back(std::move(part));
  Range rest{job.part.offset, job.part.memory};
  const uint64_t end = rest.offset + rest.memory.size();
  const uint64_t pages_begin = round_up(rest.offset, kPageBytes);
  const uint64_t pages_end = end / kPageBytes * kPageBytes;
  const bool has_pages = job.part.direct.has_value() && pages_begin < pages_end;
  if (has_pages) {
    const Range head = rest.take(pages_begin - rest.offset);
    const Range pages = rest.take(pages_end - pages_begin);
    if (!head.memory.empty()) job.buffered.push_back(head);
    start_pages(job, pages);
  }
  if (!rest.memory.empty()) job.buffered.push_back(rest);
}

void PartMover::start_pages(Job& job, Range pages) {
  job.file = queue_.adopt(std::move(*job.part.direct));
  job.adopted = true;
  if (!at_page_boundary(pages.memory)) {
    job.staged = pages;
    return;
  }
  if (job.writes()) {
    transfers_.write(job.file, pages.memory, pages.offset, job.whole);
  } else {
    transfers_.read(job.file, pages.offset, pages.memory, Urgency::kDemand, job.whole);
  }
}

uint32_t PartMover::poll() {
  stage();
  uint32_t moved = transfers_.poll();
  if (moved > 0) moved += collect();
  stage();
  moved += move_buffered();
  return moved + finish_jobs();
}

// Gives free blocks to what waits for them, oldest part first.
void PartMover::stage() {
  auto job = jobs_.begin();
  for (Block& block : blocks_) {
    if (block.busy) continue;
    while (job != jobs_.end() && !job->waits_for_block()) ++job;
    if (job == jobs_.end()) return;
    block.range = job->staged.take(block_bytes_);
    block.job = job;
    block.busy = true;
    ++job->in_flight;
    const HostSpan memory = block.memory.first(block.range.memory.size());
    if (job->writes()) {
      std::memcpy(memory.data(), block.range.memory.data(), memory.size());
      transfers_.write(job->file, memory, block.range.offset, block.completion);
    } else {
      transfers_.read(job->file, block.range.offset, memory, Urgency::kDemand, block.completion);
    }
  }
}

uint32_t PartMover::collect() {
  uint32_t count = 0;
  for (Block& block : blocks_) {
    if (!block.busy || !block.completion.done()) continue;
    Job& job = *block.job;
    block.busy = false;
    --job.in_flight;
    ++count;
    const Status status = block.completion.status();
    if (job.status.ok()) job.status = status;
    if (!status.ok() || job.writes()) continue;
    std::memcpy(block.range.memory.data(), block.memory.data(), block.range.memory.size());
  }
  return count;
}

// One block of the oldest part that has any.
uint32_t PartMover::move_buffered() {
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [](const Job& candidate) {
    return candidate.status.ok() && !candidate.buffered.empty();
  });
  if (job == jobs_.end()) return 0;
  const TargetFile& file = job->part.operation->file();
  const Range range = job->buffered.back().take(block_bytes_);
  if (job->buffered.back().memory.empty()) job->buffered.pop_back();
  job->status = job->writes() ? file.write(range.memory, range.offset)
                              : file.read(range.offset, range.memory);
  return 1;
}

uint32_t PartMover::finish_jobs() {
  uint32_t count = 0;
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    if (job->status.ok() && job->whole.done()) job->status = job->whole.status();
    const bool all_started =
        !job->status.ok() || (job->buffered.empty() && job->staged.memory.empty());
    if (!all_started || job->in_flight > 0 || job->whole.pending()) {
      ++job;
      continue;
    }
    // Closed first: who waits for the operation may want to remove the file.
    if (job->adopted) queue_.release(job->file);
    job->part.direct.reset();
    job->part.operation->finish_part(std::move(job->status));
    job = jobs_.erase(job);
    ++count;
  }
  return count;
}

}  // namespace zoffload
