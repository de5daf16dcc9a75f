#pragma once

#include <filesystem>
#include <system_error>

namespace attune {

/// Held by the one process that replaces a corrupt file. Where the folder cannot be locked it is held by nobody.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// Moves a corrupt database and its log, which belong together, to a name beside it that says when; returns it. Moves
/// nothing where it sets `error`.
std::filesystem::path keep_aside(const std::filesystem::path& path, std::error_code& error);

}  // namespace attune
