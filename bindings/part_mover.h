// Moves parts of operations between the users' memory and files. Whole pages go over the queue with
// direct I/O: from and to the user's memory where it lies at a page boundary, else through staging
// blocks. What is no whole page, and everything of a file without direct I/O, goes through the page
// cache by plain system calls, a block at a time between two looks at the queue.
//
// Pages of the file that an operation covers in part are always moved through the page cache, so
// operations that share a page, but no byte, do not harm each other.
//
// Used from one thread, the queue's.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "aio/file_queue.h"
#include "bindings/file_operation.h"
#include "core/base/span.h"
#include "core/ports/completion.h"
#include "tiers/transfer_queue.h"

namespace zoffload {

struct FilePart {
  std::shared_ptr<FileOperation> operation;
  std::optional<File> direct;  // the same file, open for direct I/O; empty: it has none
  uint64_t offset = 0;
  HostSpan memory = {};
};

class PartMover {
 public:
  // `queue` outlives this. `staging` is cut into blocks. REQUIRES: it holds one block at least, at
  // a page boundary; block_bytes is a multiple of kPageBytes.
  PartMover(FileQueue& queue, uint64_t block_bytes, HostSpan staging);
  ~PartMover();  // REQUIRES: idle()
  PartMover(const PartMover&) = delete;
  PartMover& operator=(const PartMover&) = delete;

  void add(FilePart part);
  uint32_t poll();  // goes on; returns the number of blocks and parts that came to an end
  bool idle() const { return jobs_.empty(); }
  bool saturated() const { return transfers_.saturated(); }  // another part could not start now

 private:
  struct Range {
    uint64_t offset = 0;
    HostSpan memory = {};

    Range take(uint64_t bytes);  // cuts off its first `bytes`, or all
  };

  struct Job {
    explicit Job(FilePart given) : part(std::move(given)) {}
    bool writes() const { return part.operation->kind() == FileOperation::Kind::kWrite; }
    bool waits_for_block() const { return status.ok() && !staged.memory.empty(); }

    FilePart part;
    std::vector<Range> buffered;  // still to be moved through the page cache
    Range staged;                 // still to be handed to staging blocks
    FileId file = 0;              // where part.direct was, while it has pages to move
    bool adopted = false;
    uint32_t in_flight = 0;  // staging blocks
    Completion whole;        // of pages that need no staging
    Status status;           // the first error; nothing is started after it
  };
  using Jobs = std::list<Job>;

  struct Block {
    HostSpan memory;
    Range range;
    Jobs::iterator job;
    bool busy = false;
    Completion completion;
  };

  void start_pages(Job& job, Range pages);
  uint32_t collect();
  void stage();
  uint32_t move_buffered();
  uint32_t finish_jobs();

  FileQueue& queue_;
  const uint64_t block_bytes_;
  TransferQueue transfers_;
  std::vector<Block> blocks_;  // never resized
  Jobs jobs_;                  // in the order in which they were added
};

}  // namespace zoffload
