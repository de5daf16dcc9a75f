#pragma once

#include <filesystem>
#include <string>

namespace attune {

/// The bytes of a file that a user names; `-` is standard input. A pipe is read to its end, but one that nobody opens
/// for writing is not waited for longer than a few seconds. Throws Error(io) with the system's reason,
/// Error(invalid_argument) for folders, devices and what is larger than a GiB; both name the file.
std::string read_input_file(const std::filesystem::path& path);

}  // namespace attune
