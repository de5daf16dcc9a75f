#pragma once

#include <filesystem>
#include <string>

namespace attune {

struct FileSystem {
  std::string name;      ///< "ext4", "NFS"; its number in hexadecimal if the name is not known, empty if nothing is
  bool network = false;  ///< shared memory between processes, and so WAL, does not work on it
};

FileSystem file_system_of(const std::filesystem::path& folder);

/// The folder that holds a file; "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// A word for a command that a person may paste into a shell: quoted if it needs to be.
std::string shell_word(const std::string& text);

/// Whether there is no place for one more transaction.
bool is_full(const std::filesystem::path& folder);

}  // namespace attune
