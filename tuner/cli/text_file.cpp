#include "tuner/cli/text_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "generator/error.h"

namespace attune::cli {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  // A folder opens, and throws when it is read.
  if (!file || fs::is_directory(path, ignored)) throw Error(ErrorCode::io, fmt::format("{} cannot be read", path));
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const std::string& path, const std::string& text) {
  std::error_code error;
  const bool replace = !fs::exists(path, error) || fs::is_regular_file(path, error);
  const std::string written = replace ? fmt::format("{}.{}.partial", path, ::getpid()) : path;
  std::ofstream file(written, std::ios::binary);
  file << text;
  file.close();
  if (file && replace) fs::rename(written, path, error);
  if (!file || error) {
    if (replace) fs::remove(written, error);
    throw Error(ErrorCode::io,
                fmt::format("{} cannot be written: is its folder there and writable, and the disk not full?", path));
  }
}

}  // namespace attune::cli
