#pragma once

#include <filesystem>
#include <string>

namespace attune {

/// A folder of this process and user alone for files that it needs for a moment, gone with the object. It is held by a
/// lock, which the kernel drops with the process: whoever makes the next one removes what killed processes of the same
/// user left under the same name. Other users' folders are left alone, and all where the file system knows no locks.
class ScratchFolder {
 public:
  /// Makes `parent`/`prefix`XXXXXX. `prefix` is of this use alone, such as "attune-read-". Throws
  /// std::filesystem::filesystem_error.
  ScratchFolder(const std::filesystem::path& parent, const std::string& prefix);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int held_ = -1;  // a descriptor of it, which has the lock
};

/// Where the system keeps temporary files: $TMPDIR, else /tmp.
std::filesystem::path temporary_files();

}  // namespace attune
