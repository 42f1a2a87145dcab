#include "bench/line_child.h"

#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;

namespace zoffload::bench {
namespace {

constexpr int kLookMilliseconds = 50;       // between two looks at `stopped`
constexpr off_t kLastWordsBytes = 2 << 10;  // of stderr, in an error

}  // namespace

zoffload::Result<std::unique_ptr<LineChild>> LineChild::start(
    const std::vector<std::string>& command) {
  std::unique_ptr<LineChild> child(new LineChild());
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return Status(Code::kUnsupported, "socketpair: " + std::string(std::strerror(errno)));
  }
  child->socket_ = sockets[0];
  child->stderr_ = memfd_create("stderr", MFD_CLOEXEC);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, sockets[1], 0);
  posix_spawn_file_actions_adddup2(&files, sockets[1], 1);
  if (child->stderr_ >= 0) posix_spawn_file_actions_adddup2(&files, child->stderr_, 2);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int error =
      posix_spawnp(&child->pid_, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(sockets[1]);
  if (error == 0) return child;
  child->pid_ = -1;
  return Status(Code::kUnsupported, command[0] + " cannot be started: " + std::strerror(error));
}

LineChild::~LineChild() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (socket_ >= 0) close(socket_);
  if (stderr_ >= 0) close(stderr_);
}

bool LineChild::send(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

zoffload::Result<std::string> LineChild::receive(const Stopped& stopped) {
  for (;;) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    if (stopped && stopped()) return std::string();
    pollfd look = {socket_, POLLIN, 0};
    if (poll(&look, 1, kLookMilliseconds) <= 0) continue;
    char text[4096];
    const ssize_t count = recv(socket_, text, sizeof text, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (stopped && stopped()) return std::string();  // the signal was for both of us
      return Status(Code::kUnsupported, "it ended early: " + last_words());
    }
    received_.append(text, static_cast<size_t>(count));
  }
}

std::string LineChild::last_words() const {
  const off_t size = stderr_ < 0 ? 0 : lseek(stderr_, 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - kLastWordsBytes);
  std::string text(static_cast<size_t>(std::max<off_t>(size, 0) - begin), '\0');
  const ssize_t count = pread(stderr_, text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "it said nothing" : text;
}

}  // namespace zoffload::bench
