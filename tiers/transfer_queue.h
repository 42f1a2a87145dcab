// Moves any number of bytes whole over a queue that moves a block or less, or says why not: cuts a
// transfer into blocks, keeps a limited number of them in flight, asks again for what a short
// transfer left out, and reports the first error once every block is back.
//
// What is sent first: reads that somebody waits for, then reads ahead, then writes; in each class
// in the order in which they were started. While reads are wanted, writes hold at most half of the
// depth, so that a read never stands behind a full drive of writes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <vector>

#include "core/base/span.h"
#include "core/ports/completion.h"
#include "core/ports/io_queue.h"
#include "core/ports/tier.h"

namespace zoffload {

class TransferQueue {
 public:
  // `queue` outlives this. REQUIRES: block_bytes is a multiple of queue.alignment().
  TransferQueue(IoQueue& queue, uint64_t block_bytes);
  ~TransferQueue();  // REQUIRES: nothing in flight
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  // Memory stays alive and, for write and fill, unchanged until done. REQUIRES: offsets, sizes and
  // addresses are multiples of queue.alignment().
  void read(FileId file, uint64_t offset, HostSpan to, Urgency urgency, Completion& completion);
  void write(FileId file, HostSpan from, uint64_t offset, Completion& completion);

  // Writes `block` again and again over [0, bytes). REQUIRES: block.size() >= block_bytes.
  void fill(FileId file, HostSpan block, uint64_t bytes, Completion& completion);

  uint32_t poll();  // delivers transfers that have finished; returns the number delivered
  void cancel();    // ends every transfer with kTimeout, as soon as the queue gives back its blocks

  // Most blocks in flight, 1 to queue.depth(), which it is at first.
  void set_depth(uint32_t depth);
  uint32_t depth() const { return depth_; }
  uint64_t block_bytes() const { return block_bytes_; }
  uint32_t in_flight() const { return static_cast<uint32_t>(submitted_.size()); }  // blocks
  bool idle() const;
  // The drive has all that the depth allows: what it moves now is what it can.
  bool saturated() const { return in_flight() >= depth_; }

  uint64_t moved_bytes() const { return moved_bytes_; }  // in both directions, since the start

 private:
  struct Transfer {
    IoRequest::Kind kind;
    FileId file;
    uint64_t offset;
    uint64_t bytes;
    HostSpan memory;
    bool repeats;  // every block is moved from the start of `memory`
    Completion* completion;
    uint64_t cut_bytes = 0;    // already handed to pieces
    uint32_t piece_count = 0;  // pieces that are not back
    Status status = {};        // the first error; no more pieces are cut after it

    bool all_cut() const { return !status.ok() || cut_bytes == bytes; }
  };
  using Transfers = std::list<Transfer>;

  // One block of a transfer, or what remains of it.
  struct Piece {
    size_t line = 0;
    Transfers::iterator transfer = {};
    IoRequest request = {};
    Completion completion;
  };

  // What waits and what is in flight of one class.
  struct Line {
    Transfers transfers = {};         // in the order in which they were started
    Transfers::iterator next = {};    // the first with blocks to cut, or the end
    std::deque<uint32_t> remainders;  // pieces of which a short transfer left something
    uint32_t in_flight = 0;

    bool waits() const { return !remainders.empty() || next != transfers.end(); }
  };
  static constexpr size_t kWrites = 2;  // after the urgencies of reads, in order
  static constexpr size_t kLineCount = 3;

  void start(size_t line, Transfer transfer);
  void submit_pieces();
  uint32_t room(size_t line) const;
  uint32_t next_piece(size_t line);
  void skip_cut(Line& line);
  void drop_failed_remainders(Line& line);
  void collect();
  bool take(Piece& piece);
  uint32_t deliver(Line& line);

  IoQueue& queue_;
  const uint64_t block_bytes_;
  uint32_t depth_;
  std::array<Line, kLineCount> lines_;  // in the order in which they are served
  std::vector<Piece> pieces_;           // enough for each line to have a full depth of them
  std::vector<uint32_t> free_;          // of pieces_
  std::vector<uint32_t> submitted_;     // of pieces_, in order of submission
  uint64_t moved_bytes_ = 0;
};

}  // namespace zoffload
