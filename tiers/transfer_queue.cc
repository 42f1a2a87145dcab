#include "tiers/transfer_queue.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "core/base/check.h"

namespace zoffload {
namespace {

Status no_progress(const IoRequest& request) {
  const std::string where = " at offset " + std::to_string(request.offset);
  if (request.kind == IoRequest::Kind::kRead) {
    return Status(Code::kCorruption, "unexpected end of file" + where);
  }
  return Status::from_errno(ENOSPC, "nothing could be written" + where);
}

}  // namespace

TransferQueue::TransferQueue(IoQueue& queue, uint64_t block_bytes)
    : queue_(queue),
      block_bytes_(block_bytes),
      depth_(queue.depth()),
      pieces_(kLineCount * queue.depth()) {
  ZO_CHECK(block_bytes > 0);
  ZO_CHECK(block_bytes % queue.alignment() == 0);
  for (Line& line : lines_) line.next = line.transfers.end();
  for (uint32_t i = static_cast<uint32_t>(pieces_.size()); i > 0; --i) free_.push_back(i - 1);
}

TransferQueue::~TransferQueue() { ZO_CHECK(idle()); }

bool TransferQueue::idle() const {
  return std::all_of(lines_.begin(), lines_.end(),
                     [](const Line& line) { return line.transfers.empty(); });
}

void TransferQueue::set_depth(uint32_t depth) {
  ZO_CHECK(depth > 0);
  ZO_CHECK(depth <= queue_.depth());
  depth_ = depth;
}

void TransferQueue::read(FileId file, uint64_t offset, HostSpan to, Urgency urgency,
                         Completion& completion) {
  start(static_cast<size_t>(urgency),
        {IoRequest::Kind::kRead, file, offset, to.size(), to, false, &completion});
}

void TransferQueue::write(FileId file, HostSpan from, uint64_t offset, Completion& completion) {
  start(kWrites, {IoRequest::Kind::kWrite, file, offset, from.size(), from, false, &completion});
}

void TransferQueue::fill(FileId file, HostSpan block, uint64_t bytes, Completion& completion) {
  ZO_CHECK(block.size() >= block_bytes_);
  start(kWrites, {IoRequest::Kind::kWrite, file, 0, bytes, block, true, &completion});
}

void TransferQueue::start(size_t line, Transfer transfer) {
  ZO_CHECK(transfer.bytes > 0);
  ZO_CHECK(transfer.bytes % queue_.alignment() == 0);
  ZO_CHECK(transfer.offset % queue_.alignment() == 0);
  transfer.completion->start();
  Line& at = lines_[line];
  at.transfers.push_back(std::move(transfer));
  if (at.next == at.transfers.end()) --at.next;
  submit_pieces();
}

uint32_t TransferQueue::poll() {
  uint32_t delivered = 0;
  // The second round sends the blocks for which the first one made room, so that the drive does not
  // wait for our next poll. More rounds would keep the caller for as long as a fast drive answers.
  for (int round = 0; round < 2; ++round) {
    submit_pieces();
    const uint32_t moved = queue_.poll();
    collect();
    for (Line& line : lines_) delivered += deliver(line);
    if (moved == 0) break;
  }
  return delivered;
}

void TransferQueue::submit_pieces() {
  for (size_t line = 0; line < kLineCount; ++line) {
    Line& from = lines_[line];
    drop_failed_remainders(from);
    while (from.waits() && room(line) > 0) {
      const uint32_t index = next_piece(line);
      ++from.in_flight;
      submitted_.push_back(index);
      queue_.submit(pieces_[index].request, pieces_[index].completion);
    }
  }
}

// How many more blocks of this line may be in flight.
uint32_t TransferQueue::room(size_t line) const {
  const uint32_t total = std::min(depth_ - std::min(depth_, in_flight()),
                                  queue_.depth() - queue_.in_flight());  // others may use it too
  if (line != kWrites) return total;
  const bool reads_wanted = !lines_[0].transfers.empty() || !lines_[1].transfers.empty();
  const uint32_t writes_max = reads_wanted ? std::max(1u, depth_ / 2) : depth_;
  return std::min(total, writes_max - std::min(writes_max, lines_[kWrites].in_flight));
}

// What is left of an older block, or else a new one. REQUIRES: lines_[line].waits().
uint32_t TransferQueue::next_piece(size_t line) {
  Line& from = lines_[line];
  if (!from.remainders.empty()) {
    const uint32_t index = from.remainders.front();
    from.remainders.pop_front();
    return index;
  }
  ZO_CHECK(!free_.empty());
  const uint32_t index = free_.back();
  free_.pop_back();
  Transfer& transfer = *from.next;
  const uint64_t bytes = std::min(block_bytes_, transfer.bytes - transfer.cut_bytes);
  const uint64_t begin = transfer.repeats ? 0 : transfer.cut_bytes;
  pieces_[index].line = line;
  pieces_[index].transfer = from.next;
  pieces_[index].request = {transfer.kind, transfer.file, transfer.offset + transfer.cut_bytes,
                            transfer.memory.subspan(begin, bytes)};
  transfer.cut_bytes += bytes;
  ++transfer.piece_count;
  skip_cut(from);
  return index;
}

void TransferQueue::skip_cut(Line& line) {
  while (line.next != line.transfers.end() && line.next->all_cut()) ++line.next;
}

void TransferQueue::drop_failed_remainders(Line& line) {
  std::erase_if(line.remainders, [this](uint32_t index) {
    Transfer& transfer = *pieces_[index].transfer;
    if (transfer.status.ok()) return false;
    --transfer.piece_count;
    free_.push_back(index);
    return true;
  });
}

void TransferQueue::collect() {
  std::erase_if(submitted_, [this](uint32_t index) {
    Piece& piece = pieces_[index];
    if (piece.completion.pending()) return false;
    Line& line = lines_[piece.line];
    --line.in_flight;
    if (take(piece)) {
      line.remainders.push_back(index);
    } else {
      --piece.transfer->piece_count;
      free_.push_back(index);
    }
    return true;
  });
  for (Line& line : lines_) {
    drop_failed_remainders(line);
    skip_cut(line);
  }
}

// Takes the result of a block; true if some of it is still to be moved.
bool TransferQueue::take(Piece& piece) {
  Status status = piece.completion.status();
  if (status.ok()) {
    // A file system may stop anywhere; what follows must start aligned again.
    const uint64_t bytes = piece.completion.bytes() / queue_.alignment() * queue_.alignment();
    ZO_CHECK(bytes <= piece.request.memory.size());
    if (bytes == 0) status = no_progress(piece.request);
    moved_bytes_ += bytes;
    piece.request.offset += bytes;
    piece.request.memory = piece.request.memory.subspan(bytes);
  }
  if (piece.transfer->status.ok()) piece.transfer->status = status;
  return status.ok() && !piece.request.memory.empty();
}

uint32_t TransferQueue::deliver(Line& line) {
  uint32_t delivered = 0;
  for (auto transfer = line.transfers.begin(); transfer != line.transfers.end();) {
    if (!transfer->all_cut() || transfer->piece_count > 0) {
      ++transfer;
      continue;
    }
    const uint64_t bytes = transfer->status.ok() ? transfer->bytes : 0;
    transfer->completion->finish(std::move(transfer->status), bytes);
    transfer = line.transfers.erase(transfer);
    ++delivered;
  }
  return delivered;
}

void TransferQueue::cancel() {
  for (Line& line : lines_) {
    for (Transfer& transfer : line.transfers) {
      if (transfer.status.ok()) transfer.status = Status(Code::kTimeout, "cancelled", ECANCELED);
    }
    skip_cut(line);
  }
  queue_.cancel();
}

}  // namespace zoffload
