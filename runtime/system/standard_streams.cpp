#include "runtime/system/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <mutex>

namespace attune {
namespace {

constexpr int kPatienceMilliseconds = 1000;  // with a standard error that takes nothing for now
constexpr int kForEver = -1;

// Results on their way to standard output.
struct Results {
  std::mutex mutex;  // guards the rest
  std::size_t used = 0;
  std::array<char, 1 << 16> bytes{};
  int lost_by = 0;  // why results were lost, as errno has it; nothing is written from then on
};

// Needs no memory and has nothing to destroy: static objects may have something to say when the process ends.
constinit Results results;

// While one lives, a write of this thread that fails raises no signal: a library cannot know what its program has made
// of SIGPIPE and SIGXFSZ.
class QuietWrites {
 public:
  QuietWrites() noexcept {
    sigset_t pending;
    ::sigemptyset(&ours_);
    ::sigpending(&pending);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (::sigismember(&pending, signal) == 0) ::sigaddset(&ours_, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &ours_, &before_);
  }
  ~QuietWrites() {
    constexpr timespec kNow = {};
    while (::sigtimedwait(&ours_, nullptr, &kNow) > 0 || errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  QuietWrites(const QuietWrites&) = delete;
  QuietWrites& operator=(const QuietWrites&) = delete;

 private:
  sigset_t ours_, before_;
};

// Writes all of it and returns 0, or errno. Waits so long for a descriptor that takes nothing for now.
int write_all(int descriptor, std::string_view text, int patience_milliseconds) {
  const QuietWrites quiet;
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd waited{descriptor, POLLOUT, 0};
      if (::poll(&waited, 1, patience_milliseconds) == 0) return EAGAIN;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// With its lock.
void write_results() {
  const std::string_view text(results.bytes.data(), results.used);
  if (results.lost_by == 0) results.lost_by = write_all(STDOUT_FILENO, text, kForEver);
  results.used = 0;
}

}  // namespace

void write_to_standard_error(std::string_view text) noexcept {
  const int before = errno;
  write_all(STDERR_FILENO, text, kPatienceMilliseconds);
  errno = before;
}

void write_to_standard_output(std::string_view text) noexcept {
  const std::lock_guard lock(results.mutex);
  while (!text.empty()) {
    const std::size_t count = std::min(text.size(), results.bytes.size() - results.used);
    std::memcpy(results.bytes.data() + results.used, text.data(), count);
    results.used += count;
    text.remove_prefix(count);
    if (results.used == results.bytes.size()) write_results();
  }
  if (::isatty(STDOUT_FILENO) == 1) write_results();  // somebody watches
}

std::string flush_standard_output() noexcept {
  const std::lock_guard lock(results.mutex);
  write_results();
  try {
    return results.lost_by == 0 ? std::string() : std::strerror(results.lost_by);
  } catch (...) {
    return "lost";  // short enough to take no memory
  }
}

void keep_standard_descriptors() noexcept {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free is this one. Opened the other way round, so that using it fails.
    ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void survive_failed_writes() noexcept {
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    struct sigaction action {};
    // A handler, unlike SIG_IGN, is not inherited by programs that this one starts.
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace attune
