#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// What became of a program that was run to its end.
struct ChildProgramResult {
  int status = 0;      ///< exit status; 128 + the signal that ended it
  std::string output;  ///< what it wrote, as far as it is kept
  bool cut = false;    ///< it wrote more
};

enum class ChildOutput {
  standard_output,  ///< only that is kept; standard error is the caller's
  both              ///< standard error is kept, too
};

/// Runs a program by its path (no shell, no search) to its end, with nothing to read. At most `most_bytes` of what it
/// writes are kept, the first ones. Throws Error(io) that names the program if it cannot be started.
ChildProgramResult run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                               ChildOutput kept, std::size_t most_bytes);

/// The program that a name means: itself if it has a slash, else the first of that name in a folder that $PATH names
/// from the root. The current folder is never looked at, even where $PATH has an empty or relative entry.
std::optional<std::filesystem::path> find_program(const std::string& name);

/// Whether this is a file that can be run.
bool is_program(const std::filesystem::path& path);

}  // namespace attune
