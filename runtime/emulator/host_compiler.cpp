#include "runtime/emulator/host_compiler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <vector>

#include "generator/error.h"

extern char** environ;

namespace attune {
namespace {

namespace fs = std::filesystem;

// No contraction: the same bits whether or not the host has fused multiply-add. Hidden: kernels must not see each
// other's functions.
const std::vector<std::string> kFlags = {"-O2",
                                         "-std=c++20",
                                         "-ffp-contract=off",
                                         "-fno-math-errno",
                                         "-fPIC",
                                         "-fno-exceptions",
                                         "-fvisibility=hidden",
                                         "-fvisibility-inlines-hidden",
                                         "-shared",
                                         "-w"};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// $ATTUNE_HOST_COMPILER may hold arguments: "ccache g++".
std::vector<std::string> compiler_command() {
  std::string text = environment("ATTUNE_HOST_COMPILER");
  if (text.empty()) text = "c++";
  std::istringstream words(text);
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  return command;
}

struct ProgramResult {
  int status = -1;  // exit status, 128 + signal, or -1 if it could not be started
  std::string output;
};

ProgramResult run_program(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  ProgramResult result;
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (failed) {
    close(pipe_ends[0]);
    return result;
  }
  char buffer[4096];
  for (;;) {
    const ssize_t count = read(pipe_ends[0], buffer, sizeof buffer);
    if (count > 0) {
      result.output.append(buffer, static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      break;
    }
  }
  close(pipe_ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::vector<fs::path> candidate_folders() {
  std::vector<fs::path> folders;
  if (const std::string folder = environment("ATTUNE_CACHE_DIR"); !folder.empty())
    folders.push_back(fs::path(folder) / "emulator");
  if (const std::string folder = environment("XDG_CACHE_HOME"); !folder.empty()) {
    folders.push_back(fs::path(folder) / "attune" / "emulator");
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    folders.push_back(fs::path(home) / ".cache" / "attune" / "emulator");
  }
  std::error_code error;
  fs::path temporary = fs::temp_directory_path(error);
  if (error) temporary = "/tmp";
  folders.push_back(temporary / fmt::format("attune-emulator-{}", getuid()));
  return folders;
}

// The first folder of the list that can be written.
fs::path writable_folder() {
  const std::vector<fs::path> folders = candidate_folders();
  for (const fs::path& folder : folders) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (!error && access(folder.c_str(), W_OK | X_OK) == 0) return folder;
  }
  throw Error(
      ErrorCode::io,
      fmt::format("no folder for the emulator's compiled kernels can be written (the last one tried was {}); set "
                  "ATTUNE_CACHE_DIR to one",
                  folders.back().string()));
}

std::string hexadecimal_hash(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void sync_file(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

}  // namespace

std::string host_compiler_version() {
  static std::mutex mutex;
  static std::map<std::vector<std::string>, std::string> known;
  const std::vector<std::string> command = compiler_command();
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(command); found != known.end()) return found->second;
  std::vector<std::string> question = command;
  question.push_back("--version");
  const ProgramResult result = run_program(question);
  if (result.status != 0) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format(
            "the emulator needs a C++20 host compiler, and '{}' cannot be run; install one (apt install g++) or set "
            "ATTUNE_HOST_COMPILER to one",
            fmt::join(command, " ")));
  }
  return known[command] = result.output.substr(0, result.output.find('\n'));
}

HostObject compile_for_host(const std::string& source, bool rebuild) {
  const std::string version = host_compiler_version();
  const fs::path folder = writable_folder();
  const std::string key = hexadecimal_hash(fmt::format("{}\n{}\n{}", version, fmt::join(kFlags, " "), source));
  HostObject object;
  object.path = folder / (key + ".so");
  std::error_code error;
  if (!rebuild && fs::exists(object.path, error)) {
    object.from_cache = true;
    return object;
  }

  static std::atomic<int> serial{0};
  const fs::path stem = folder / fmt::format("{}.{}.{}", key, getpid(), serial++);
  const fs::path source_path = stem.string() + ".cpp";
  const fs::path object_path = stem.string() + ".so.tmp";
  {
    std::ofstream file(source_path, std::ios::binary);
    file << source;
    if (!file.flush()) {
      fs::remove(source_path, error);
      throw Error(ErrorCode::io, fmt::format("cannot write {}: {}; free some space or set ATTUNE_CACHE_DIR",
                                             source_path.string(), std::strerror(errno)));
    }
  }
  std::vector<std::string> command = compiler_command();
  command.insert(command.end(), kFlags.begin(), kFlags.end());
  command.insert(command.end(), {source_path.string(), "-o", object_path.string(), "-lm"});
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result = run_program(command);
  object.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  object.log = result.output;
  fs::remove(source_path, error);
  if (result.status != 0) {
    fs::remove(object_path, error);
    throw Error(ErrorCode::compile_failed, fmt::format("{} refused a kernel for the emulator (status {}):\n{}",
                                                       compiler_command().front(), result.status, result.output));
  }
  sync_file(object_path);
  fs::rename(object_path, object.path, error);
  if (error) {
    const std::string why = error.message();
    fs::remove(object_path, error);
    throw Error(ErrorCode::io, fmt::format("cannot write {}: {}", object.path.string(), why));
  }
  return object;
}

}  // namespace attune
