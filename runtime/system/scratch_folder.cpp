#include "runtime/system/scratch_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <vector>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRandom = "XXXXXX";  // what mkdtemp() replaces

int open_folder(const fs::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

// Whether a descriptor's folder is the one that has this name now.
bool is_named(int descriptor, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

bool is_ours(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 && facts.st_uid == ::geteuid();
}

std::vector<fs::path> folders_of(const fs::path& parent, const std::string& prefix) {
  std::vector<fs::path> found;
  DIR* const listing = ::opendir(parent.c_str());
  if (listing == nullptr) return found;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name.size() == prefix.size() + kRandom.size() && name.starts_with(prefix)) found.push_back(parent / name);
  }
  ::closedir(listing);
  return found;
}

void remove_dead(const fs::path& parent, const std::string& prefix) {
  for (const fs::path& path : folders_of(parent, prefix)) {
    const int folder = open_folder(path);
    if (folder < 0) continue;
    // With its lock: who has made it this moment and waits for that finds it gone, and makes another one.
    if (is_ours(folder) && ::flock(folder, LOCK_EX | LOCK_NB) == 0 && is_named(folder, path)) {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
    ::close(folder);
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const fs::path& parent, const std::string& prefix) {
  remove_dead(parent, prefix);
  const auto fail = [&] {
    throw fs::filesystem_error("cannot make a temporary folder", parent, {errno, std::generic_category()});
  };
  while (held_ < 0) {
    std::string name = (parent / (prefix + std::string(kRandom))).string();
    if (::mkdtemp(name.data()) == nullptr) fail();
    path_ = name;
    held_ = open_folder(path_);
    if (held_ < 0) {
      if (errno == ENOENT) continue;  // taken for a dead one
      const int error = errno;
      ::rmdir(path_.c_str());
      errno = error;
      fail();
    }
    while (::flock(held_, LOCK_EX) != 0 && errno == EINTR) {
    }
    if (is_named(held_, path_)) continue;
    ::close(held_);
    held_ = -1;
  }
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(held_);
}

fs::path temporary_files() {
  std::error_code error;
  const fs::path named = fs::temp_directory_path(error);
  return error ? fs::path("/tmp") : named;
}

}  // namespace attune
