// What the tests of I/O queues share: a folder that goes away, aligned memory, a request brought to
// its end, and a child process that reports in words.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>

#include "core/base/check.h"
#include "core/base/span.h"
#include "core/base/types.h"
#include "core/ports/io_queue.h"

namespace zoffload::test {

// By default in the working directory, which is a disk where the temporary directory may be memory.
class TempFolder {
 public:
  explicit TempFolder(const std::filesystem::path& base = std::filesystem::current_path()) {
    std::string name = base / "zoffload-test-XXXXXX";
    ZO_CHECK(mkdtemp(name.data()) == name.data());
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_; }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Page-aligned memory of its own mapping, zeroed.
class AlignedMemory {
 public:
  explicit AlignedMemory(uint64_t bytes, int protection = PROT_READ | PROT_WRITE) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ZO_CHECK(data_ != MAP_FAILED);
  }
  ~AlignedMemory() { munmap(data_, bytes_); }
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;

  HostSpan span() const { return {static_cast<std::byte*>(data_), bytes_}; }
  HostSpan part(uint64_t offset, uint64_t bytes) const { return span().subspan(offset, bytes); }

 private:
  void* data_;
  uint64_t bytes_;
};

inline void fill_random(HostSpan memory, std::mt19937_64& random) {
  for (uint64_t& word : elements<uint64_t>(memory)) word = random();
}

inline bool same_bytes(ConstHostSpan a, ConstHostSpan b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

using Pump = std::function<void()>;  // lets time pass

inline void drain(IoQueue& queue, const Pump& pump) {
  while (queue.in_flight() > 0) {
    if (queue.poll() == 0) pump();
  }
}

// One request from submit to done; the status it ended with, and the bytes.
struct Outcome {
  Status status;
  uint64_t bytes = 0;
};
inline Outcome run(IoQueue& queue, const Pump& pump, const IoRequest& request) {
  Completion completion;
  queue.submit(request, completion);
  drain(queue, pump);
  return {completion.status(), completion.bytes()};
}

// Moves all of `memory`, going on where a short transfer ended. An error at the end of the file.
inline Status transfer(IoQueue& queue, const Pump& pump, IoRequest request) {
  while (!request.memory.empty()) {
    const Outcome part = run(queue, pump, request);
    ZO_TRY(part.status);
    if (part.bytes == 0) return Status(Code::kIoError, "nothing moved");
    request.offset += part.bytes;
    request.memory = request.memory.subspan(part.bytes);
  }
  return Status();
}

inline Status write_all(IoQueue& queue, const Pump& pump, FileId file, uint64_t offset,
                        HostSpan from) {
  return transfer(queue, pump, {IoRequest::Kind::kWrite, file, offset, from});
}
inline Status read_all(IoQueue& queue, const Pump& pump, FileId file, uint64_t offset,
                       HostSpan to) {
  return transfer(queue, pump, {IoRequest::Kind::kRead, file, offset, to});
}

// Runs `body` in a forked child. Returns what it returned, "" for success; or how the child died.
inline std::string run_in_child(const std::function<std::string()>& body) {
  int ends[2];
  ZO_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  ZO_CHECK(child >= 0);
  if (child == 0) {
    const std::string complaint = body();
    const ssize_t written = ::write(ends[1], complaint.data(), complaint.size());
    _exit(written == static_cast<ssize_t>(complaint.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string complaint;
  char text[256];
  for (ssize_t count; (count = ::read(ends[0], text, sizeof text)) > 0;) {
    complaint.append(text, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ZO_CHECK(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "exit status " + std::to_string(WEXITSTATUS(status));
  return complaint;
}

}  // namespace zoffload::test
