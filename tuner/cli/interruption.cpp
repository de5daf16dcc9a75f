#include "tuner/cli/interruption.h"

#include <csignal>
#include <initializer_list>

namespace attune::cli {
namespace {

std::atomic<bool> asked_to_stop = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch lock-free atomics only");

void on_signal(int signal) {
  asked_to_stop = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interruption::Interruption() {
  asked_to_stop = false;
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, on_signal);
}

Interruption::~Interruption() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
}

const std::atomic<bool>& Interruption::asked() const { return asked_to_stop; }

}  // namespace attune::cli
