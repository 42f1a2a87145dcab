#include "aio/libaio_queue.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace zoffload {
namespace {

long read_setting(const char* path) {
  long value = 0;
  std::ifstream(path) >> value;
  return value;
}

std::string explain(int error_number) {
  switch (error_number) {
    case EAGAIN:
      return "libaio got no context (EAGAIN): " +
             std::to_string(read_setting("/proc/sys/fs/aio-nr")) +
             " of fs.aio-max-nr=" + std::to_string(read_setting("/proc/sys/fs/aio-max-nr")) +
             " requests are taken; raise it with `sysctl fs.aio-max-nr=1048576`";
    case ENOSYS: return "libaio is missing from this kernel (ENOSYS)";
    case EPERM: return "libaio is denied (EPERM); a seccomp profile may forbid io_setup";
    default: return std::string("libaio failed: ") + std::strerror(error_number);
  }
}

iocb describe(const IoRequest& request, uint32_t index, int fd) {
  iocb block = {};
  block.aio_data = index;
  block.aio_fildes = static_cast<uint32_t>(fd);
  switch (request.kind) {
    case IoRequest::Kind::kRead: block.aio_lio_opcode = IOCB_CMD_PREAD; break;
    case IoRequest::Kind::kWrite: block.aio_lio_opcode = IOCB_CMD_PWRITE; break;
    case IoRequest::Kind::kFlush: block.aio_lio_opcode = IOCB_CMD_FDSYNC; return block;
  }
  block.aio_buf = reinterpret_cast<uint64_t>(request.memory.data());
  block.aio_nbytes = request.memory.size();
  block.aio_offset = static_cast<int64_t>(request.offset);
  return block;
}

}  // namespace

Result<std::unique_ptr<LibaioQueue>> LibaioQueue::create(const IoQueueOptions& options) {
  ZO_CHECK(options.depth > 0);
  aio_context_t context = 0;
  if (syscall(__NR_io_setup, options.depth, &context) != 0) {
    const int error_number = errno;
    return Status(Code::kUnsupported, explain(error_number), error_number);
  }
  return std::unique_ptr<LibaioQueue>(new LibaioQueue(context, options));
}

LibaioQueue::LibaioQueue(aio_context_t context, const IoQueueOptions& options)
    : FileQueue(options), context_(context), events_(options.depth) {}

LibaioQueue::~LibaioQueue() {
  if (abandoned_in_child()) return;  // the context stayed with the parent
  drain();
  syscall(__NR_io_destroy, context_);
}

Status LibaioQueue::accepts(const File& file) const {
  if (file.direct()) return Status();
  const std::string& why = file.why_buffered();
  return Status(Code::kUnsupported,
                file.path() + ": libaio moves only direct files, and this one is buffered" +
                    (why.empty() ? "" : ", " + why) + "; use the I/O engine uring or threads",
                EOPNOTSUPP);
}

bool LibaioQueue::start(uint32_t index) {
  const IoRequest& request = this->request(index);
  if (files().holds(request.file) && !files()[request.file].direct()) {
    arrived(index, -EOPNOTSUPP);
    return true;
  }
  const int fd = files().fd(request.file);
  iocb block = describe(request, index, fd);  // the kernel copies it
  iocb* blocks[] = {&block};
  if (syscall(__NR_io_submit, context_, 1, blocks) == 1) return true;
  int error_number = errno;
  if (error_number == EAGAIN) return false;
  // A file system, or a kernel before 4.18, without asynchronous flushes.
  if (request.kind == IoRequest::Kind::kFlush && error_number == EINVAL) {
    error_number = fdatasync(fd) == 0 ? 0 : errno;
  }
  arrived(index, -error_number);
  return true;
}

bool LibaioQueue::collect(uint64_t ns_max) {
  constexpr uint64_t kSecondNs = 1'000'000'000;
  timespec timeout = {static_cast<time_t>(ns_max / kSecondNs),
                      static_cast<long>(ns_max % kSecondNs)};
  const long count = syscall(__NR_io_getevents, context_, ns_max > 0 ? 1L : 0L,
                             static_cast<long>(events_.size()), events_.data(), &timeout);
  ZO_CHECK(count >= 0 || errno == EINTR);
  if (count < 0) return false;
  for (long i = 0; i < count; ++i) {
    arrived(static_cast<uint32_t>(events_[i].data), events_[i].res);
  }
  return true;
}

// The kernel has no way to stop direct I/O: what was started comes in its own time.
void LibaioQueue::ask_back(const std::vector<uint32_t>&) {}

}  // namespace zoffload
