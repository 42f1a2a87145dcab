#include "bench/interrupt.h"

#include <atomic>
#include <csignal>

namespace zoffload::bench {
namespace {

// The one global: a signal handler has no other way to say anything.
std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  int none = 0;
  if (caught.compare_exchange_strong(none, number)) return;
  signal(number, SIG_DFL);  // raised again, it ends the program when this handler returns
  raise(number);
}

}  // namespace

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int caught_signal() { return caught.load(std::memory_order_relaxed); }

}  // namespace zoffload::bench
