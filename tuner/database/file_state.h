#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace attune {

/// Which state of a file's bytes was seen.
struct FileState {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  ///< since the epoch; of a file that is not there all is 0
  friend bool operator==(const FileState&, const FileState&) = default;
};
FileState state_of(const std::filesystem::path& path);

/// What keeps a path from being a file to read; empty if nothing does. Opens nothing: a pipe would wait for ever.
std::string no_file_because(const std::filesystem::path& path);

/// Whether this process may use a path as access(2) means it, with its effective user.
bool may(const std::filesystem::path& path, int how);

/// The path without links. Throws sqlite::Failure.
std::filesystem::path resolved(const std::filesystem::path& path);

/// The fields of a database's first bytes; of a file that is too short for them all is 0.
struct DatabaseHeader {
  /// Throws sqlite::Failure.
  explicit DatabaseHeader(const std::filesystem::path& path);
  bool is_database() const;
  bool uses_write_ahead_log() const;
  std::int64_t application() const;

  std::string bytes;
};

}  // namespace attune
