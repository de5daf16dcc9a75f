#include "tests/cli/command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/catch.h"
#include "tests/temporary_folder.h"

extern char** environ;

namespace attune::testing {
namespace {

/// Beside the test program, wherever the build was copied to.
std::string command_path() {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "attune";
  if (!std::filesystem::exists(path))
    throw std::runtime_error(path.string() + " does not exist: build the target attune");
  return path.string();
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) result.push_back(text);
  }
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

CommandResult run_program_to(const std::string& stdout_path, std::vector<std::string> command,
                             const std::map<std::string, std::string>& environment) {
  const TemporaryFolder folder;
  const std::string err = folder.file("err");
  std::map<std::string, std::string> changes = environment;
  changes.try_emplace("ATTUNE_DATABASE", folder.file("none.db"));
  changes.try_emplace("ATTUNE_SYSTEM_DATABASE", "");
  std::vector<std::string> variables = environment_with(changes);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, stdout_path.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = -1;
  const int error =
      posix_spawn(&child, command[0].c_str(), &actions, nullptr, pointers(command).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot run " + command[0]);
  int status = 0;
  if (::waitpid(child, &status, 0) != child) throw std::runtime_error("cannot wait for " + command[0]);
  CommandResult result;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.err = read_file(err);
  return result;
}

std::vector<std::string> command_with(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {command_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

CommandResult run_attune(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment) {
  const TemporaryFolder folder;
  CommandResult result = run_attune_to(folder.file("out"), arguments, environment);
  result.out = read_file(folder.file("out"));
  return result;
}

CommandResult run_attune_to(const std::string& stdout_path, const std::vector<std::string>& arguments,
                            const std::map<std::string, std::string>& environment) {
  return run_program_to(stdout_path, command_with(arguments), environment);
}

CommandResult run_attune_by_shell(const std::string& line, const std::vector<std::string>& arguments,
                                  const std::map<std::string, std::string>& environment) {
  const TemporaryFolder folder;
  std::vector<std::string> command = {"/bin/sh", "-c", line, "sh"};
  for (std::string& word : command_with(arguments)) command.push_back(std::move(word));
  CommandResult result = run_program_to(folder.file("out"), std::move(command), environment);
  result.out = read_file(folder.file("out"));
  return result;
}

nlohmann::json CommandResult::json() const {
  INFO("stdout: " << out << "\nstderr: " << err);
  nlohmann::json document = nlohmann::json::parse(out, nullptr, false);
  REQUIRE_FALSE(document.is_discarded());
  return document;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace attune::testing
