#include "runtime/child_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "generator/error.h"

extern char** environ;

namespace attune {
namespace {

namespace fs = std::filesystem;

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

// Reads to the end, also what is not kept: the program must not wait for a reader.
void read_to_end(int descriptor, std::size_t most_bytes, ChildProgramResult& result) {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    const std::size_t kept = std::min(static_cast<std::size_t>(count), most_bytes - result.output.size());
    result.output.append(buffer, kept);
    result.cut = result.cut || kept < static_cast<std::size_t>(count);
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;  // somebody else's handler has taken it
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
    read_to_end(from.number, most_bytes, result);
  } catch (...) {
    from.close();  // what it writes from now on ends it
    wait_for(child);
    throw;
  }
  result.status = wait_for(child);
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
