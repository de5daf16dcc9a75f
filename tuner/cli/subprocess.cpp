#include "tuner/cli/subprocess.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "generator/error.h"

extern char** environ;

namespace attune::cli {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(ErrorCode::io, fmt::format("{}: {}", what, std::strerror(error)));
}

bool is_program(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

/// A folder that is removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "attune-XXXXXX").string();
    if (!::mkdtemp(name.data())) fail(fmt::format("cannot create a temporary folder {}", name), errno);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string read_to_end(int descriptor) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

SubprocessResult run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot create a pipe", errno);
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = -1;
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    fail(fmt::format("cannot run {}", program.string()), error);
  }
  SubprocessResult result;
  result.output = read_to_end(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail(fmt::format("cannot wait for {}", program.string()), errno);
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::optional<std::filesystem::path> find_nvdisasm() {
  if (const char* named = std::getenv("ATTUNE_NVDISASM"); named && *named) {
    if (!is_program(named)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("ATTUNE_NVDISASM names {}, which is no program that can be run", named));
    }
    return named;
  }
  std::string folders = std::getenv("PATH") ? std::getenv("PATH") : "";
  if (const char* home = std::getenv("CUDA_HOME"); home && *home) folders += fmt::format(":{}/bin", home);
  folders += ":/usr/local/cuda/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::filesystem::path candidate = std::filesystem::path(folders.substr(begin, end - begin)) / "nvdisasm";
    if (end > begin && is_program(candidate)) return candidate;
    begin = end + 1;
  }
  return std::nullopt;
}

std::string disassemble(const std::string& cubin) {
  const std::optional<std::filesystem::path> nvdisasm = find_nvdisasm();
  if (!nvdisasm) {
    throw Error(
        ErrorCode::unsupported,
        "SASS needs nvdisasm, which is not in PATH, $CUDA_HOME/bin or /usr/local/cuda/bin: install the CUDA toolkit's "
        "cuda-nvdisasm package, or set ATTUNE_NVDISASM to the program");
  }
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "kernel.cubin";
  std::ofstream(file, std::ios::binary).write(cubin.data(), static_cast<std::streamsize>(cubin.size()));
  const SubprocessResult result = run_program(*nvdisasm, {file.string()});
  if (result.status != 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} ended with status {}: it may be older than the GPU that the kernel is for",
                            nvdisasm->string(), result.status));
  }
  return result.output;
}

}  // namespace attune::cli
