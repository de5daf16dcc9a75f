#include "runtime/system/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <utility>

#include "attune/log.h"
#include "generator/lazy_value.h"
#include "runtime/system/state_mutex.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOursAlone = 0700, kFileOursAlone = 0600, kWritableByOthers = S_IWGRP | S_IWOTH;
constexpr int kAttempts = 16;  // at a name that nobody has
constexpr const char* kAnotherFolder = "or name another folder with ATTUNE_CACHE_DIR";

std::string random_name(const std::string& prefix) {
  unsigned char bytes[12] = {};
  if (::getrandom(bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
    // Early at boot: O_EXCL sees to it that nobody else's file is taken, whatever the name.
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    std::memcpy(bytes, &now.tv_nsec, sizeof(now.tv_nsec));
  }
  std::string name = prefix;
  for (const unsigned char byte : bytes) name += fmt::format("{:02x}", byte);
  return name;
}

std::string user_text(uid_t user) { return fmt::format("user {}", user); }

// What is to be done first about a parent that anybody can write to; empty if there is none. `parents` is canonical.
std::string objection_to_parents(const fs::path& parents) {
  for (fs::path folder = parents;; folder = folder.parent_path()) {
    struct stat facts {};
    if (::lstat(folder.c_str(), &facts) != 0) return fmt::format("{}: {}", folder.string(), std::strerror(errno));
    if ((facts.st_mode & S_IWOTH) != 0 && (facts.st_mode & S_ISVTX) == 0) {
      return fmt::format("its parent {} can be written by everybody; run chmod o-w {},", folder.string(),
                         folder.string());
    }
    if (folder == folder.root_path() || folder.empty()) return {};
  }
}

// Makes a folder and its parents, each for this user alone. Returns errno, or 0.
int make_folders(const fs::path& folder) {
  if (::mkdir(folder.c_str(), kOursAlone) == 0 || errno == EEXIST) return 0;
  if (errno != ENOENT || !folder.has_parent_path() || folder.parent_path() == folder) return errno;
  if (const int error = make_folders(folder.parent_path()); error != 0) return error;
  return ::mkdir(folder.c_str(), kOursAlone) == 0 || errno == EEXIST ? 0 : errno;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? value : nullptr;
}

}  // namespace

uid_t PrivateFolder::effective_user() { return ::geteuid(); }

PrivateFolder::PrivateFolder(const fs::path& folder, uid_t user) : path_(folder), user_(user) { make_and_open(folder); }

PrivateFolder::PrivateFolder(fs::path path, uid_t user, int at, const std::string& name)
    : path_(std::move(path)), user_(user) {
  open(at, name);
}

void PrivateFolder::make_and_open(const fs::path& folder) {
  std::error_code error;
  fs::path whole = fs::absolute(folder, error);
  if (!error) whole = whole.lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "cache/"
  if (error || !whole.has_relative_path()) return refuse(State::unavailable, "it is no folder for a cache");
  if (const int failure = make_folders(whole); failure != 0) {
    return refuse(State::unavailable, fmt::format("it cannot be made: {}", std::strerror(failure)));
  }
  // Links among the parents are resolved once; the folder itself must be none.
  const fs::path parents = fs::canonical(whole.parent_path(), error);
  if (error) return refuse(State::unavailable, fmt::format("it cannot be opened: {}", error.message()));
  path_ = parents / whole.filename();
  if (const std::string objection = objection_to_parents(parents); !objection.empty()) {
    return refuse(State::unsafe, fmt::format("{} {}", objection, kAnotherFolder));
  }
  open(AT_FDCWD, path_.string());
}

void PrivateFolder::open(int at, const std::string& name) {
  descriptor_ = ::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ < 0) {
    const int error = errno;
    struct stat facts {};
    if (::fstatat(at, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode)) {
      return refuse(State::unsafe, fmt::format("it is a symbolic link: remove it, {}", kAnotherFolder));
    }
    return refuse(State::unavailable, fmt::format("it cannot be opened: {}", std::strerror(error)));
  }
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) {
    return refuse(State::unavailable, fmt::format("it cannot be examined: {}", std::strerror(errno)));
  }
  if (!trusted(facts.st_uid)) {
    return refuse(State::unsafe,
                  fmt::format("it belongs to {}, and this process runs as {}: run chown {} {}, {}",
                              user_text(facts.st_uid), user_text(user_), user_, path_.string(), kAnotherFolder));
  }
  if ((facts.st_mode & kWritableByOthers) != 0) {
    return refuse(State::unsafe,
                  fmt::format("others than its owner can write to it (mode {:03o}): empty it and run chmod go-w {}, {}",
                              facts.st_mode & 0777u, path_.string(), kAnotherFolder));
  }
  writable_ = ::faccessat(descriptor_, ".", W_OK | X_OK, AT_EACCESS) == 0;
  if (!writable_) complaint_ = fmt::format("{} cannot be written: {}", path_.string(), std::strerror(errno));
}

void PrivateFolder::refuse(State state, const std::string& complaint) {
  state_ = state;
  writable_ = false;
  complaint_ = fmt::format("{} is not used as a cache: {}", path_.string(), complaint);
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

PrivateFolder::~PrivateFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

PrivateFolder::PrivateFolder(PrivateFolder&& other) noexcept
    : path_(std::move(other.path_)),
      user_(other.user_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      state_(other.state_),
      writable_(other.writable_),
      complaint_(std::move(other.complaint_)) {}

PrivateFolder& PrivateFolder::operator=(PrivateFolder&& other) noexcept {
  path_.swap(other.path_);
  std::swap(user_, other.user_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(state_, other.state_);
  std::swap(writable_, other.writable_);
  complaint_.swap(other.complaint_);
  return *this;
}

// For functions that take no descriptor: this leads to the folder that was checked, whatever its name has become.
fs::path PrivateFolder::by_descriptor(const std::string& name) const {
  return fs::path("/proc/self/fd") / std::to_string(descriptor_) / name;
}

std::optional<std::string> PrivateFolder::read(const std::string& name, std::size_t most_bytes,
                                               std::string* why_not) const {
  return read_regular_file(descriptor_, name, most_bytes, Links::refused, why_not, [&](const struct stat& facts) {
    if (!trusted(facts.st_uid)) return "it belongs to " + user_text(facts.st_uid);
    if ((facts.st_mode & kWritableByOthers) != 0) return std::string("others than its owner can write to it");
    return std::string();
  });
}

bool PrivateFolder::write(const std::string& name, std::string_view bytes, std::string* why_not) const {
  const auto fail = [&] {
    if (why_not != nullptr) *why_not = std::strerror(errno);
    return false;
  };
  std::string fresh;
  int file = -1;
  for (int attempt = 0; file < 0 && attempt < kAttempts; ++attempt) {
    fresh = random_name(".");
    file = ::openat(descriptor_, fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileOursAlone);
    if (file < 0 && errno != EEXIST) break;
  }
  if (file < 0) return fail();
  bool written = write_all(file, bytes) && ::fsync(file) == 0;
  int error = errno;
  if (::close(file) != 0 && written) {
    written = false;
    error = errno;
  }
  if (written && ::renameat(descriptor_, fresh.c_str(), descriptor_, name.c_str()) == 0) return true;
  if (written) error = errno;
  ::unlinkat(descriptor_, fresh.c_str(), 0);
  errno = error;
  return fail();
}

void PrivateFolder::claim(const std::string& name) const noexcept {
  ::fchmodat(descriptor_, name.c_str(), kFileOursAlone, 0);
}

PrivateFolder PrivateFolder::existing(const std::string& name) const {
  return PrivateFolder(path_ / name, user_, descriptor_, name);
}

PrivateFolder PrivateFolder::subfolder(const std::string& name) const {
  ::mkdirat(descriptor_, name.c_str(), kOursAlone);  // opening tells whether it is there
  return existing(name);
}

PrivateFolder PrivateFolder::make_temporary(const std::string& prefix) const {
  std::string name;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    name = random_name(prefix);
    if (::mkdirat(descriptor_, name.c_str(), kOursAlone) == 0 || errno != EEXIST) break;
  }
  PrivateFolder made = existing(name);
  // Until it is closed; a process that is killed lets go of it, too. Shared, which a descriptor for reading allows on
  // file systems that tell the two apart.
  if (made.descriptor_ >= 0) ::flock(made.descriptor_, LOCK_SH | LOCK_NB);
  return made;
}

bool PrivateFolder::has(const std::string& name) const {
  struct stat facts {};
  return ::fstatat(descriptor_, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
}

bool PrivateFolder::move(const std::string& name, const PrivateFolder& to, const std::string& new_name) const {
  return ::renameat(descriptor_, name.c_str(), to.descriptor_, new_name.c_str()) == 0;
}

void PrivateFolder::remove(const std::string& name) const noexcept {
  try {
    std::error_code ignored;
    fs::remove_all(by_descriptor(name), ignored);
  } catch (const std::bad_alloc&) {
    // It stays, until remove_older() finds it.
  }
}

// What the time is by the clock that stamps the files of this folder, which on a network file system is its server's.
std::optional<timespec> PrivateFolder::file_system_time(std::string_view prefix) const noexcept {
  try {
    const std::string name = random_name(std::string(prefix));
    if (::mkdirat(descriptor_, name.c_str(), kOursAlone) != 0) return std::nullopt;
    struct stat facts {};
    const bool known = ::fstatat(descriptor_, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
    ::unlinkat(descriptor_, name.c_str(), AT_REMOVEDIR);
    return known ? std::optional(facts.st_mtim) : std::nullopt;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

// Whether somebody has it open as a temporary folder. False if that cannot be told.
bool PrivateFolder::is_held(const char* name) const noexcept {
  const int folder = ::openat(descriptor_, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (folder < 0) return false;
  const bool held = ::flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(folder);
  return held;
}

void PrivateFolder::remove_older(std::string_view prefix, std::chrono::seconds age) const noexcept {
  const int copy = ::openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = copy >= 0 ? ::fdopendir(copy) : nullptr;
  if (listing == nullptr) {
    if (copy >= 0) ::close(copy);
    return;
  }
  std::optional<timespec> now;  // asked for at the first of those that it matters to
  while (const dirent* entry = ::readdir(listing)) {
    const std::string_view name = entry->d_name;
    struct stat facts {};
    if (!name.starts_with(prefix) || name == "." || name == "..") continue;
    if (::fstatat(descriptor_, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!now) now = file_system_time(prefix);
    if (!now) break;
    if (facts.st_mtim.tv_sec >= now->tv_sec - age.count() || is_held(entry->d_name)) continue;
    try {
      remove(std::string(name));
    } catch (const std::bad_alloc&) {
      break;
    }
  }
  ::closedir(listing);
}

bool PrivateFolder::sync() const { return ::fsync(descriptor_) == 0; }

std::vector<CacheFolder> cache_folders(const std::string& name, const fs::path& below_named) {
  std::vector<CacheFolder> folders;
  if (const char* named = variable("ATTUNE_CACHE_DIR"))
    folders.push_back({below_named.empty() ? fs::path(named) : fs::path(named) / below_named, true});
  if (const char* caches = variable("XDG_CACHE_HOME"); caches != nullptr && *caches == '/') {
    folders.push_back({fs::path(caches) / "attune" / name});
  }
  if (const char* home = variable("HOME"); home != nullptr && *home == '/') {
    struct stat facts {};
    if (::stat(home, &facts) == 0 && facts.st_uid != ::geteuid()) {
      // Folders made there would be in the way of whom it belongs to.
      if (folders.empty()) {
        warn_once(
            fmt::format("HOME is {}, which belongs to {}, but this process runs as {} (under sudo?): no cache is "
                        "kept there; name a folder with ATTUNE_CACHE_DIR, or run sudo -H",
                        home, user_text(facts.st_uid), user_text(::geteuid())));
      }
    } else {
      folders.push_back({fs::path(home) / ".cache" / "attune" / name});
    }
  }
  std::error_code error;
  fs::path temporary = fs::temp_directory_path(error);
  if (error) temporary = "/tmp";
  folders.push_back({temporary / fmt::format("attune-{}-{}", name, ::geteuid())});
  return folders;
}

void warn_once(const std::string& message) {
  struct Said {
    StateMutex mutex;
    std::set<std::string> messages;
  };
  static constinit LazyValue<Said> all;
  {
    Said& said = all.get();
    const std::lock_guard lock(said.mutex);
    if (!said.messages.insert(message).second) return;
  }
  log(LogLevel::warning, message);
}

}  // namespace attune
