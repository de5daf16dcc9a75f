#include "tuner/database/database_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/system/printable.h"
#include "tuner/database/file_system.h"
#include "tuner/database/measurement.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kEnding = "-attune-lock";
// With it begins what a lock file holds; a file that holds anything else is none.
constexpr std::string_view kMark = "attune lock: ";
constexpr std::size_t kMostText = 300;
constexpr std::chrono::milliseconds kPause{5};
// For which a file that cannot be opened may be one whose maker has not set its mode yet.
constexpr std::chrono::milliseconds kPatienceWithModes{100};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown host";
}

// Who may replace files in the folder may open its lock.
mode_t mode_for(const struct stat& folder) {
  constexpr mode_t kOwner = S_IRUSR | S_IWUSR, kGroup = S_IRGRP | S_IWGRP, kOthers = S_IROTH | S_IWOTH;
  if ((folder.st_mode & S_IWOTH) != 0) return (folder.st_mode & S_ISVTX) != 0 ? kOwner : kOwner | kGroup | kOthers;
  return (folder.st_mode & S_IWGRP) != 0 ? kOwner | kGroup : kOwner;
}

// Whether everybody may create files there and nobody may replace another's.
bool is_public(const struct stat& folder) { return (folder.st_mode & S_IWOTH) != 0 && (folder.st_mode & S_ISVTX) != 0; }

// "process 4711 on this.machine since 2026-11-27T10:00:00.000000Z"; "another process" where the file does not say.
std::string holder_of(int file) {
  std::string text(kMostText, '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (!text.starts_with(kMark) || !text.ends_with('\n')) return "another process";
  return printable_line(text.substr(kMark.size(), text.size() - kMark.size() - 1));
}

}  // namespace

DatabaseLock::DatabaseLock(const fs::path& database, std::chrono::milliseconds patience)
    : database_(database), path_(database.string() + kEnding), name_(path_.filename().string()) {
  try {
    take(patience);
  } catch (...) {
    release();
    throw;
  }
}

DatabaseLock::~DatabaseLock() { release(); }

void DatabaseLock::take(std::chrono::milliseconds patience) {
  folder_ = ::open(folder_of(database_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) return;
  auto begin = Clock::now();
  for (std::string waited_for;;) {
    const Attempt attempt = try_to_lock();
    if (attempt == Attempt::locked) break;
    close_file();
    if (attempt == Attempt::impossible) return;
    if (holder_ != waited_for) {  // the queue moves
      waited_for = holder_;
      begin = Clock::now();
    }
    if (Clock::now() - begin > patience) {
      state_ = State::busy;
      complaint_ = fmt::format("{} has kept {} locked for {:g} s: run again when it has ended, or end it", holder_,
                               path_.string(), std::chrono::duration<double>(patience).count());
      return;
    }
    std::this_thread::sleep_for(kPause);
  }
  state_ = State::held;
  ::flock(folder_, LOCK_EX | LOCK_NB);
  const std::string line = fmt::format("{}process {} on {} since {}\n", kMark, ::getpid(), host_name(), utc_now());
  // What cannot be written is missed only by those who wait.
  static_cast<void>(::ftruncate(file_, 0) == 0 && ::pwrite(file_, line.data(), line.size(), 0) > 0);
}

void DatabaseLock::release() noexcept {
  if (state_ == State::held) {
    if (is_found()) ::unlinkat(folder_, name_.c_str(), 0);
    // Closing is not enough where another thread has forked meanwhile: the child has the same open files.
    ::flock(file_, LOCK_UN);
    ::flock(folder_, LOCK_UN);
  }
  close_file();
  if (folder_ >= 0) ::close(folder_);
}

void DatabaseLock::close_file() noexcept {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

// Whether the name still leads to the file that is open. Who held the lock before has removed its file with it.
bool DatabaseLock::is_found() const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file_, &opened) == 0 && ::fstatat(folder_, name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

DatabaseLock::Attempt DatabaseLock::try_to_lock() {
  const auto begin = Clock::now();
  while (!open_file()) {
    // Another has made it between two steps of this one, or has yet to set its mode.
    const bool passing = errno == EEXIST || (errno == EACCES && Clock::now() - begin < kPatienceWithModes);
    if (!passing) return Attempt::impossible;
    std::this_thread::sleep_for(kPause);
  }
  if (!may_be_used()) return Attempt::impossible;
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR && errno != ESTALE) return Attempt::impossible;
    holder_ = holder_of(file_);
    return Attempt::again;
  }
  return is_found() ? Attempt::locked : Attempt::again;
}

// Opens the file that is there, or makes one. False, with errno, if neither can be done.
bool DatabaseLock::open_file() {
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  file_ = ::openat(folder_, name_.c_str(), kFlags);
  if (file_ >= 0 || errno != ENOENT) return file_ >= 0;
  file_ = ::openat(folder_, name_.c_str(), kFlags | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  if (file_ < 0) return false;
  struct stat folder {};
  struct stat made {};
  struct stat database {};
  if (::fstat(folder_, &folder) != 0 || ::fstat(file_, &made) != 0) return true;
  // Root's would be closed to those whom the database belongs to.
  if (made.st_uid == 0) {
    const bool exists = ::stat(database_.c_str(), &database) == 0;
    static_cast<void>(::fchown(file_, exists ? database.st_uid : folder.st_uid, folder.st_gid) == 0);
  }
  mode_t mode = mode_for(folder);
  if (made.st_gid != folder.st_gid && ::fchown(file_, static_cast<uid_t>(-1), folder.st_gid) != 0 &&
      (mode & S_IWOTH) == 0)
    mode &= ~static_cast<mode_t>(S_IRWXG);  // it has another group than the one that is meant
  ::fchmod(file_, mode);
  return true;
}

// Whether the file is a lock and no stranger's; the complaint says if it is not.
bool DatabaseLock::may_be_used() {
  const auto refuse = [&](const std::string& what) {
    complaint_ = fmt::format("{} {} and is not used: remove it", path_.string(), what);
    return false;
  };
  struct stat file {};
  struct stat folder {};
  struct stat database {};
  if (::fstat(file_, &file) != 0 || ::fstat(folder_, &folder) != 0) return false;
  std::array<char, kMark.size()> begin{};
  const ssize_t got = S_ISREG(file.st_mode) ? ::pread(file_, begin.data(), begin.size(), 0) : -1;
  const bool is_lock = got == 0 || std::string_view(begin.data(), begin.size()) == kMark;
  if (!is_lock || file.st_nlink > 1) return refuse("is no lock of a database");
  if (!is_public(folder) || file.st_uid == ::geteuid() || file.st_uid == 0 || file.st_uid == folder.st_uid) return true;
  if (::stat(database_.c_str(), &database) == 0 && file.st_uid == database.st_uid) return true;
  return refuse(fmt::format("belongs to user {}", file.st_uid));
}

}  // namespace attune
