// One file of the NVMe tier, on the queue of the drive that holds it. A queue moves a block or less
// of it; this moves any number of bytes whole, or says why not: it cuts a transfer into blocks,
// keeps at most depth() of them in flight, asks again for what a short transfer left out, and
// reports the first error once every block is back.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "core/base/span.h"
#include "core/ports/completion.h"
#include "core/ports/io_queue.h"

namespace zoffload {

class NvmeFile {
 public:
  // `queue` outlives the file. REQUIRES: block_bytes is a multiple of queue.alignment().
  NvmeFile(IoQueue& queue, FileId file, uint64_t block_bytes);
  ~NvmeFile();  // REQUIRES: nothing in flight
  NvmeFile(const NvmeFile&) = delete;
  NvmeFile& operator=(const NvmeFile&) = delete;

  // Memory stays alive and, for write and fill, unchanged until done. Blocks of reads are submitted
  // before those of writes: what is read, somebody waits for.
  void read(uint64_t offset, HostSpan to, Completion& completion);
  void write(HostSpan from, uint64_t offset, Completion& completion);

  // Writes `block` again and again over [0, bytes). REQUIRES: block.size() >= block_bytes.
  void fill(HostSpan block, uint64_t bytes, Completion& completion);

  uint32_t poll();  // delivers transfers that have finished; returns the number delivered

  // Ends every transfer with kTimeout, as soon as the queue gives back its blocks.
  void cancel();

  uint64_t moved_bytes() const { return moved_bytes_; }  // in both directions, since the start

 private:
  struct Transfer {
    IoRequest::Kind kind;
    uint64_t offset;
    uint64_t bytes;
    HostSpan memory;
    bool repeats;  // every block is moved from the start of `memory`
    Completion* completion;
    uint64_t cut_bytes = 0;    // already handed to pieces
    uint32_t piece_count = 0;  // pieces that are not back
    Status status = {};        // the first error; no more pieces are cut after it
  };

  // One block of a transfer, or what remains of it.
  struct Piece {
    enum class State : uint8_t { kFree, kReady, kSubmitted };
    State state = State::kFree;
    std::list<Transfer>::iterator transfer = {};
    IoRequest request = {};
    Completion completion;
  };

  void start(Transfer transfer);
  void submit_pieces();
  bool cut_piece(Piece& piece);
  void collect(Piece& piece);
  void release(Piece& piece, Status status);
  uint32_t deliver(std::list<Transfer>& transfers);

  IoQueue& queue_;
  const FileId file_;
  const uint64_t block_bytes_;
  std::vector<Piece> pieces_;  // depth() of them, for ever
  std::list<Transfer> reads_;  // in the order in which they were started
  std::list<Transfer> writes_;
  uint64_t moved_bytes_ = 0;
};

}  // namespace zoffload
