#include "runtime/system/child_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "generator/error.h"

extern char** environ;

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr int kPollMilliseconds = 20;

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(ErrorCode::io, fmt::format("{}: {}", what, std::strerror(error)));
}

// A descriptor that is closed in every case.
struct Descriptor {
  int number = -1;
  ~Descriptor() { close(); }
  void close() {
    if (number >= 0) ::close(number);
    number = -1;
  }
};

struct SpawnActions {
  posix_spawn_file_actions_t actions;
  SpawnActions() { posix_spawn_file_actions_init(&actions); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions); }
};

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

// Reads to the end, also what is not kept: the program must not wait for a reader. Returns the program's status. What
// it has left running may hold the pipe for ever: nobody waits for that.
int read_until_it_ends(pid_t child, int descriptor, std::size_t most_bytes, ChildProgramResult& result) {
  char buffer[1 << 16];
  bool ended = false;
  int wait_status = 0;
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer, sizeof(buffer));
    if (count > 0) {
      const std::size_t kept = std::min(static_cast<std::size_t>(count), most_bytes - result.output.size());
      result.output.append(buffer, kept);
      result.cut = result.cut || kept < static_cast<std::size_t>(count);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || errno != EAGAIN || ended) break;
    pollfd pipe{descriptor, POLLIN, 0};
    if (::poll(&pipe, 1, kPollMilliseconds) == 0) ended = ::waitpid(child, &wait_status, WNOHANG) == child;
  }
  while (!ended) {
    if (::waitpid(child, &wait_status, 0) == child) break;
    if (errno != EINTR) return -1;  // somebody else's handler has taken it
  }
  return status_of(wait_status);
}

}  // namespace

ChildProgramResult run_program(const fs::path& program, const std::vector<std::string>& arguments, ChildOutput kept,
                               std::size_t most_bytes) {
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot create a pipe", errno);
  Descriptor from{ends[0]}, to{ends[1]};
  ::fcntl(from.number, F_SETFL, O_NONBLOCK);
  pid_t child = -1;
  {
    SpawnActions spawn;
    posix_spawn_file_actions_addopen(&spawn.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&spawn.actions, to.number, STDOUT_FILENO);
    if (kept == ChildOutput::both) posix_spawn_file_actions_adddup2(&spawn.actions, to.number, STDERR_FILENO);
    const int error = ::posix_spawn(&child, program.c_str(), &spawn.actions, nullptr, argv.data(), environ);
    if (error != 0) fail(fmt::format("cannot run {}", program.string()), error);
  }
  to.close();
  ChildProgramResult result;
  try {
    result.status = read_until_it_ends(child, from.number, most_bytes, result);
  } catch (...) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw;
  }
  return result;
}

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::optional<fs::path> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return is_program(name) ? std::optional<fs::path>(name) : std::nullopt;
  }
  const char* path = std::getenv("PATH");
  const std::string folders = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const fs::path folder = folders.substr(begin, end - begin);
    if (folder.is_absolute() && is_program(folder / name)) return folder / name;
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace attune
