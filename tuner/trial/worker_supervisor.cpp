#include "tuner/trial/worker_supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "generator/error.h"
#include "tuner/trial/process_tree.h"

namespace attune {
namespace {

constexpr auto kPatienceWithKilled = std::chrono::seconds(1);

sigset_t watched_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

// Whoever limits the supervisor's memory means the child's: a limit that came before the child could be seen is taken
// over here, a later one reaches it as a descendant.
void take_memory_limit(pid_t from) {
  rlimit limit{};
  if (::prlimit(from, RLIMIT_AS, nullptr, &limit) == 0) ::setrlimit(RLIMIT_AS, &limit);
}

// Only the child answers, and only its closing the channel counts.
void leave_channel() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  if (nothing > STDERR_FILENO) ::close(nothing);
}

// Waits until the child ends or somebody wants this process to end. Reaps orphans on the way.
int wait_for(pid_t child, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended == child) return status;
    }
    const int signal = ::sigwaitinfo(&signals, nullptr);
    if (signal > 0 && signal != SIGCHLD) return signal;  // as the status of one whom it has ended
  }
}

[[noreturn]] void end_as(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);  // the child has left its own
    std::signal(signal, SIG_DFL);
    sigset_t all;
    sigemptyset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::raise(signal);
  }
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

int supervise(const std::function<int()>& work) {
  const sigset_t signals = watched_signals();
  sigset_t before;
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would leave no status to hand on
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const pid_t supervisor = ::getpid(), child = ::fork();
  if (child < 0) throw Error(ErrorCode::io, fmt::format("a worker cannot be started: {}", std::strerror(errno)));
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != supervisor) ::_exit(1);
    take_memory_limit(supervisor);
    return work();
  }
  leave_channel();
  const int status = wait_for(child, signals);
  kill_descendants(supervisor);
  const auto deadline = std::chrono::steady_clock::now() + kPatienceWithKilled;
  for (pid_t ended = 1; ended >= 0 && std::chrono::steady_clock::now() < deadline;) {
    ended = ::waitpid(-1, nullptr, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  end_as(status);
}

}  // namespace attune
