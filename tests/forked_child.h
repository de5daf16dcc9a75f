#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace attune::testing {

/// Whether `work` returned true in a forked child. A child that has not ended after so many seconds hangs, is killed
/// and counts as failed.
template <typename Work>
bool succeeds_in_child(const Work& work, int seconds = 30) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool succeeded = false;
    try {
      succeeded = work();
    } catch (...) {
    }
    ::_exit(succeeded ? 0 : 1);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  int status = -1;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace attune::testing
