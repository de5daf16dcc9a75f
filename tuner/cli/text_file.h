#pragma once

#include <string>

namespace attune::cli {

/// The bytes of a file. Throws Error(io) that names it.
std::string read_text(const std::string& path);

/// Whole or not at all: an existing file is replaced when all is written. Through an existing device or pipe as it
/// comes. Throws Error(io) that names the file; what was there stays.
void write_text(const std::string& path, const std::string& text);

}  // namespace attune::cli
