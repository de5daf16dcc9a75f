#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace attune::testing {

/// What a run of the built `attune` said and returned.
struct CommandResult {
  int status = -1;  ///< exit status; 128 + the signal that ended it
  std::string out, err;

  /// stdout as the one JSON document that it must be; anything before or after it fails the test.
  nlohmann::json json() const;
};

/// Runs `attune` with these arguments. The environment is this process's, but for `environment`, for a database that
/// does not exist and no system database unless they are named.
CommandResult run_attune(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment = {});

/// The same with stdout going to a file or device; `out` stays empty.
CommandResult run_attune_to(const std::string& stdout_path, const std::vector<std::string>& arguments,
                            const std::map<std::string, std::string>& environment = {});

/// The same by a line of the shell, in which "$@" is the command with its arguments: `exec "$@" 2>&-`.
CommandResult run_attune_by_shell(const std::string& line, const std::vector<std::string>& arguments,
                                  const std::map<std::string, std::string>& environment = {});

/// Hides every GPU of the machine from the command.
inline const std::map<std::string, std::string> kNoGpu = {{"CUDA_VISIBLE_DEVICES", "-1"}};

/// A small problem, and where it is tuned without a GPU.
inline const std::string kShape = " --heads 2 --seq 48 --head-dim 64 --causal",
                         kEmulator = " --device emulator --target a100";

/// Words of a line, for arguments without spaces: {"check", "--seq", "4"}.
std::vector<std::string> words(const std::string& line);

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);

}  // namespace attune::testing
