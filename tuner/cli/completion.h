#pragma once

#include <string>

#include "tuner/cli/command_line.h"

namespace attune::cli {

/// The script that lets a shell ("bash", "zsh" or "fish") complete verbs, flags, the values that are listed for
/// them, and files where any text is taken.
std::string completion_script(const CommandLine::Description& program, const std::string& shell);

}  // namespace attune::cli
