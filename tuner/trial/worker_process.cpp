#include "tuner/trial/worker_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>

#include "generator/error.h"
#include "runtime/system/child_program.h"
#include "runtime/system/private_folder.h"
#include "tuner/trial/process_tree.h"

extern char** environ;

namespace attune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLastWordsBytes = 600, kMostLineBytes = 4096;
constexpr int kMostWarnings = 20;  // of one worker that are passed on
constexpr int kMostReads = 64;     // of its standard error in a row
constexpr std::string_view kWarning = "attune: warning: ";
constexpr std::size_t kMaxAnswerBytes = 64u << 20;
constexpr int kPollMilliseconds = 50;
constexpr double kPatienceAfterCancel = 3;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void close_if_open(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

// Text that a terminal shows and does not obey.
bool is_plain(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; });
}

// Those that end a program. The C library's own table is younger than those that Attune runs with.
std::string signal_name(int signal) {
  switch (signal) {
    case SIGABRT:
      return "SIGABRT";
    case SIGALRM:
      return "SIGALRM";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGHUP:
      return "SIGHUP";
    case SIGILL:
      return "SIGILL";
    case SIGINT:
      return "SIGINT";
    case SIGKILL:
      return "SIGKILL";
    case SIGPIPE:
      return "SIGPIPE";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGSEGV:
      return "SIGSEGV";
    case SIGSYS:
      return "SIGSYS";
    case SIGTERM:
      return "SIGTERM";
    case SIGTRAP:
      return "SIGTRAP";
    case SIGXCPU:
      return "SIGXCPU";
    case SIGXFSZ:
      return "SIGXFSZ";
    default:
      return fmt::format("signal {}", signal);
  }
}

}  // namespace

WorkerProcess::WorkerProcess(const std::string& command) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(ErrorCode::io, fmt::format("no channel to a worker can be made: {}", std::strerror(errno)));
  }
  channel_ = ends[0];
  int words[2] = {-1, -1};
  if (::pipe2(words, O_CLOEXEC) == 0) ::fcntl(words[0], F_SETFL, O_NONBLOCK);
  words_end_ = words[0];

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  if (words[1] >= 0) posix_spawn_file_actions_adddup2(&actions, words[1], STDERR_FILENO);
  // A process group of its own: Ctrl-C on a terminal is its parent's.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::string program = command, verb = "worker";
  char* arguments[] = {program.data(), verb.data(), nullptr};
  const int failure = ::posix_spawn(&pid_, program.c_str(), &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  close_if_open(words[1]);
  if (failure != 0) {
    close_if_open(channel_);
    close_if_open(words_end_);
    throw Error(ErrorCode::io,
                fmt::format("the worker {} cannot be run: {}; name the attune command with ATTUNE_COMMAND", command,
                            std::strerror(failure)));
  }
}

WorkerProcess::~WorkerProcess() {
  close_if_open(channel_);
  const auto deadline = after(kFarewellSeconds);
  while (alive() && Clock::now() < deadline) {
    hear();  // one that waits for a reader does not end
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  kill_and_reap();
  hear();
  close_if_open(words_end_);
}

void WorkerProcess::limit_memory(std::size_t bytes) {
  const rlimit limit{bytes, bytes};
  ::prlimit(pid_, RLIMIT_AS, &limit, nullptr);
  for (const pid_t process : descendants_of(pid_)) ::prlimit(process, RLIMIT_AS, &limit, nullptr);
}

bool WorkerProcess::alive() {
  if (!reaped_ && ::waitpid(pid_, &wait_status_, WNOHANG) == pid_) reaped();
  return !reaped_;
}

// Its supervisor has seen to what it had started; here goes what a command without one has left in its group.
void WorkerProcess::reaped() {
  reaped_ = true;
  ::kill(-pid_, SIGKILL);
}

// What it has started goes first, as long as it has a parent to be found by.
void WorkerProcess::kill_and_reap() {
  if (!alive()) return;
  kill_descendants(pid_);
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
  reaped();
}

// Reads what the child has written to its standard error by now.
void WorkerProcess::hear() {
  char bytes[1 << 14];
  for (int i = 0; words_end_ >= 0 && i < kMostReads; ++i) {
    const ssize_t got = ::read(words_end_, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return close_if_open(words_end_);
    words_.append(bytes, static_cast<std::size_t>(got));
    if (words_.size() > kLastWordsBytes) words_.erase(0, words_.size() - kLastWordsBytes);
    line_.append(bytes, static_cast<std::size_t>(got));
    pass_on_warnings();
  }
}

// What a worker warns of (a cache that cannot be used) is for the person in front of this process.
void WorkerProcess::pass_on_warnings() {
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = line_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(line_).substr(begin, end - begin);
    if (!line.starts_with(kWarning) || line.size() > kMostLineBytes || !is_plain(line)) continue;
    if (++warnings_ <= kMostWarnings) warn_once(std::string(line.substr(kWarning.size())));
  }
  line_.erase(0, begin);
  // The rest of a line that is too long begins with something else.
  if (line_.size() > kMostLineBytes) line_.assign(1, '.');
}

std::string WorkerProcess::last_words() {
  hear();
  std::string words = words_;
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

// The child has closed its channel: it has ended, or is about to.
WorkerAnswer WorkerProcess::ended() {
  const auto deadline = after(kFarewellSeconds);
  while (alive() && Clock::now() < deadline) {
    hear();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string text;
  if (alive()) {
    kill_and_reap();
    text = "the worker closed its channel without an answer, and was killed";
  } else if (WIFSIGNALED(wait_status_)) {
    text = fmt::format("the worker died of {} ({})", signal_name(WTERMSIG(wait_status_)),
                       ::strsignal(WTERMSIG(wait_status_)));
  } else {
    text = fmt::format("the worker ended with exit status {} and no answer", WEXITSTATUS(wait_status_));
  }
  const std::string words = last_words();
  if (!words.empty()) text += "; its last words: " + words;
  return {WorkerAnswer::Kind::crashed, text};
}

WorkerAnswer WorkerProcess::ask(const std::string& request, double timeout_seconds, const std::atomic<bool>* cancel) {
  auto deadline = after(timeout_seconds);
  bool cancelled = false;
  const std::string line = request + "\n";
  std::size_t sent = 0;
  while (true) {
    if (cancel && *cancel && !cancelled) {
      cancelled = true;
      deadline = std::min(deadline, after(kPatienceAfterCancel));
    }
    const std::size_t end = received_.find('\n');
    if (end != std::string::npos) {
      WorkerAnswer answer{WorkerAnswer::Kind::answered, received_.substr(0, end)};
      received_.erase(0, end + 1);
      return answer;
    }
    if (received_.size() > kMaxAnswerBytes) {
      kill_and_reap();
      return {WorkerAnswer::Kind::crashed, "the worker answered without end, and was killed"};
    }
    if (Clock::now() >= deadline) {
      kill_and_reap();
      return {WorkerAnswer::Kind::timed_out,
              fmt::format("no answer within {:g} s; the worker was killed", timeout_seconds)};
    }
    pollfd watched[] = {{channel_, static_cast<short>(POLLIN | (sent < line.size() ? POLLOUT : 0)), 0},
                        {words_end_, POLLIN, 0}};
    const pollfd& channel = watched[0];
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count() + 1;
    if (::poll(watched, 2, static_cast<int>(std::min<std::int64_t>(left, kPollMilliseconds))) <= 0) continue;
    if (watched[1].revents != 0) hear();
    if (channel.revents & (POLLIN | POLLHUP | POLLERR)) {
      char bytes[1 << 14];
      const ssize_t got = ::recv(channel_, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got > 0) {
        received_.append(bytes, static_cast<std::size_t>(got));
        continue;
      }
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) return ended();
    }
    if (sent < line.size() && (channel.revents & POLLOUT)) {
      const ssize_t put = ::send(channel_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put > 0) {
        sent += static_cast<std::size_t>(put);
      } else if (errno != EAGAIN && errno != EINTR) {
        return ended();
      }
    }
  }
}

namespace {

std::atomic<bool> is_attune_command{false};

}  // namespace

void be_attune_command() noexcept { is_attune_command = true; }

std::string find_attune_command() {
  namespace fs = std::filesystem;
  if (const char* named = std::getenv("ATTUNE_COMMAND"); named && *named) return named;
  if (is_attune_command) {
    constexpr const char* kThisProgram = "/proc/self/exe";  // also where its file was renamed or removed meanwhile
    std::error_code error;
    const fs::path self = fs::read_symlink(kThisProgram, error);
    return is_program(self) ? self.string() : kThisProgram;
  }
  Dl_info place{};
  std::string file;
  if (::dladdr(reinterpret_cast<void*>(&find_attune_command), &place) != 0 && place.dli_fname) file = place.dli_fname;
  // For an executable the loader knows the name that it was started by, which may be one without a folder.
  if (!file.empty() && file.find('/') == std::string::npos) {
    std::error_code error;
    file = fs::read_symlink("/proc/self/exe", error).string();
  }
  if (!file.empty()) {
    const fs::path self = fs::absolute(file), folder = self.parent_path();
    if (self.filename() == "attune" && is_program(self)) return self.string();
    for (const fs::path& candidate : {folder / "attune", folder / ".." / "bin" / "attune"}) {
      if (is_program(candidate)) return candidate.lexically_normal().string();
    }
  }
  throw Error(ErrorCode::io,
              "the attune command, which runs candidates in a process of their own, was not found; name it with "
              "ATTUNE_COMMAND");
}

}  // namespace attune
