#include "tiers/nvme_file.h"

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

NvmeFile::NvmeFile(IoQueue& queue, FileId file, uint64_t block_bytes)
    : queue_(queue), file_(file), block_bytes_(block_bytes), pieces_(queue.depth()) {
  ZO_CHECK(block_bytes > 0);
  ZO_CHECK(block_bytes % queue.alignment() == 0);
}

NvmeFile::~NvmeFile() {
  ZO_CHECK(reads_.empty());
  ZO_CHECK(writes_.empty());
}

void NvmeFile::read(uint64_t offset, HostSpan to, Completion& completion) {
  start({IoRequest::Kind::kRead, offset, to.size(), to, false, &completion});
}

void NvmeFile::write(HostSpan from, uint64_t offset, Completion& completion) {
  start({IoRequest::Kind::kWrite, offset, from.size(), from, false, &completion});
}

void NvmeFile::fill(HostSpan block, uint64_t bytes, Completion& completion) {
  ZO_CHECK(block.size() >= block_bytes_);
  start({IoRequest::Kind::kWrite, 0, bytes, block, true, &completion});
}

void NvmeFile::start(Transfer transfer) {
  ZO_CHECK(transfer.bytes > 0);
  ZO_CHECK(transfer.bytes % queue_.alignment() == 0);
  transfer.completion->start();
  std::list<Transfer>& queue = transfer.kind == IoRequest::Kind::kRead ? reads_ : writes_;
  queue.push_back(std::move(transfer));
  submit_pieces();
}

uint32_t NvmeFile::poll() {
  uint32_t delivered = 0;
  // The second round sends the blocks for which the first one made room, so that the drive does not
  // wait for our next poll. More rounds would keep the caller for as long as a fast drive answers.
  for (int round = 0; round < 2; ++round) {
    submit_pieces();
    const uint32_t moved = queue_.poll();
    for (Piece& piece : pieces_) collect(piece);
    delivered += deliver(reads_) + deliver(writes_);
    if (moved == 0) break;
  }
  return delivered;
}

void NvmeFile::submit_pieces() {
  for (Piece& piece : pieces_) {
    if (piece.state == Piece::State::kReady && !piece.transfer->status.ok()) release(piece, {});
    if (queue_.in_flight() == queue_.depth()) continue;
    if (piece.state == Piece::State::kSubmitted) continue;
    if (piece.state == Piece::State::kFree && !cut_piece(piece)) continue;
    piece.state = Piece::State::kSubmitted;
    queue_.submit(piece.request, piece.completion);
  }
}

// Puts the next block that waits into `piece`; false if none does.
bool NvmeFile::cut_piece(Piece& piece) {
  for (std::list<Transfer>* transfers : {&reads_, &writes_}) {
    const auto transfer =
        std::find_if(transfers->begin(), transfers->end(), [](const Transfer& waiting) {
          return waiting.status.ok() && waiting.cut_bytes < waiting.bytes;
        });
    if (transfer == transfers->end()) continue;
    const uint64_t bytes = std::min(block_bytes_, transfer->bytes - transfer->cut_bytes);
    const uint64_t begin = transfer->repeats ? 0 : transfer->cut_bytes;
    piece.transfer = transfer;
    piece.request = {transfer->kind, file_, transfer->offset + transfer->cut_bytes,
                     transfer->memory.subspan(begin, bytes)};
    transfer->cut_bytes += bytes;
    ++transfer->piece_count;
    return true;
  }
  return false;
}

void NvmeFile::collect(Piece& piece) {
  if (piece.state != Piece::State::kSubmitted || piece.completion.pending()) return;
  if (!piece.completion.status().ok()) return release(piece, piece.completion.status());

  // A file system may stop anywhere; what follows must start aligned again.
  const uint64_t bytes = piece.completion.bytes() / queue_.alignment() * queue_.alignment();
  ZO_CHECK(bytes <= piece.request.memory.size());
  if (bytes == 0) return release(piece, no_progress(piece.request));
  moved_bytes_ += bytes;
  piece.request.offset += bytes;
  piece.request.memory = piece.request.memory.subspan(bytes);
  piece.state = Piece::State::kReady;
  if (piece.request.memory.empty()) release(piece, {});
}

void NvmeFile::release(Piece& piece, Status status) {
  Transfer& transfer = *piece.transfer;
  if (transfer.status.ok()) transfer.status = std::move(status);
  --transfer.piece_count;
  piece.state = Piece::State::kFree;
}

uint32_t NvmeFile::deliver(std::list<Transfer>& transfers) {
  uint32_t delivered = 0;
  for (auto transfer = transfers.begin(); transfer != transfers.end();) {
    const bool ended = !transfer->status.ok() || transfer->cut_bytes == transfer->bytes;
    if (!ended || transfer->piece_count > 0) {
      ++transfer;
      continue;
    }
    const uint64_t bytes = transfer->status.ok() ? transfer->bytes : 0;
    transfer->completion->finish(std::move(transfer->status), bytes);
    transfer = transfers.erase(transfer);
    ++delivered;
  }
  return delivered;
}

void NvmeFile::cancel() {
  for (std::list<Transfer>* transfers : {&reads_, &writes_}) {
    for (Transfer& transfer : *transfers) {
      if (transfer.status.ok()) transfer.status = Status(Code::kTimeout, "cancelled", ECANCELED);
    }
  }
  queue_.cancel();
}

}  // namespace zoffload
