#include "tuner/database/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "generator/error.h"
#include "runtime/system/standard_streams.h"
#include "tuner/database/file_system.h"
#include "tuner/database/kernel_pack.h"
#include "tuner/database/system_database.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::array kBesideDatabase = {"-wal", "-shm", "-journal"};

std::string reason_of(int error) { return std::generic_category().message(error); }

bool is_same_file(const struct stat& a, const fs::path& other) {
  struct stat b {};
  return ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The path behind the links of its last name, even if there is nothing.
fs::path behind_links(fs::path path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i) {
    const fs::path to = fs::read_symlink(path, error);
    path = to.is_absolute() ? to : folder_of(path) / to;
  }
  return path;
}

// The first bytes of a file, as many as there are up to an SQLite header's; nothing if there is no file.
std::string head_of(const fs::path& path, int* error) {
  constexpr std::size_t kHeaderBytes = 100;
  *error = 0;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno != ENOENT) *error = errno;
    return {};
  }
  std::string head(kHeaderBytes, '\0');
  const ssize_t got = ::pread(descriptor, head.data(), head.size(), 0);
  if (got < 0) *error = errno;
  ::close(descriptor);
  head.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return head;
}

bool is_sqlite(std::string_view head) { return head.starts_with(std::string_view("SQLite format 3\0", 16)); }

// Devices that take anything and keep nothing, and terminals.
bool is_harmless_device(const struct stat& facts, const fs::path& path) {
  constexpr unsigned kMemoryDevices = 1, kNull = 3, kZero = 5, kFull = 7;
  if (!S_ISCHR(facts.st_mode)) return false;
  const unsigned minor_number = minor(facts.st_rdev);
  if (major(facts.st_rdev) == kMemoryDevices)
    return minor_number == kNull || minor_number == kZero || minor_number == kFull;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  const bool terminal = descriptor >= 0 && ::isatty(descriptor) == 1;
  if (descriptor >= 0) ::close(descriptor);
  return terminal;
}

std::string unpredictable_name(const fs::path& target) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number))
    throw Error(ErrorCode::io, fmt::format("no random name can be made: {}", reason_of(errno)));
  constexpr std::size_t kMostOfName = 200;  // of the 255 that a name may have
  return fmt::format(".{}.{:016x}.partial", target.filename().string().substr(0, kMostOfName), number);
}

}  // namespace

/// While one lives, SIGINT, SIGTERM and SIGHUP wait.
class OutputFile::HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    ::sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&held, signal);
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

bool OutputFile::is_standard_output(const fs::path& path) {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
}

OutputFile::OutputFile(const fs::path& path, OutputRules rules) : path_(path), rules_(std::move(rules)) {
  try {
    open();
  } catch (...) {
    release();
    throw;
  }
}

OutputFile::~OutputFile() { release(); }

void OutputFile::release() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlinkat(folder_, temporary_.c_str(), 0);
  if (folder_ >= 0) ::close(folder_);
}

void OutputFile::open() {
  struct stat facts {};
  if (is_standard_output(path_)) {
    if (rules_.binary && ::isatty(STDOUT_FILENO) == 1)
      refuse("these bytes are nothing for a terminal: redirect standard output, or name a file");
    flush_standard_output();
    descriptor_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (descriptor_ < 0) fail(errno);
    return;
  }
  if (!path_.has_filename()) refuse("name a file to be written");
  if (::stat(path_.c_str(), &facts) != 0) {
    if (errno != ENOENT) fail(errno);
  } else if (S_ISDIR(facts.st_mode)) {
    refuse("it is a folder: name a file to be written");
  } else if (S_ISFIFO(facts.st_mode)) {
    open_through(O_WRONLY | O_CLOEXEC);
    return;
  } else if (!S_ISREG(facts.st_mode)) {
    if (!is_harmless_device(facts, path_))
      refuse(fmt::format("it is a {}: name a file to be written", S_ISSOCK(facts.st_mode) ? "socket" : "device"));
    open_through(O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (rules_.binary && ::isatty(descriptor_) == 1) refuse("these bytes are nothing for a terminal: name a file");
    return;
  }
  target_ = behind_links(path_);
  refuse_inputs();
  refuse_database();
  open_temporary();
}

std::string OutputFile::name() const { return is_standard_output(path_) ? "standard output" : path_.string(); }

void OutputFile::refuse(const std::string& why) const {
  throw Error(ErrorCode::invalid_argument, fmt::format("{} is not written: {}", name(), why));
}

void OutputFile::fail(int error) const {
  std::string advice;
  if (error == ENOSPC || error == EDQUOT) advice = "; free some space and run again";
  if (error == ENOENT) advice = fmt::format("; make the folder {} first", folder_of(target_).string());
  if (error == EACCES || error == EPERM || error == EROFS) advice = "; name a file in a folder that you may write to";
  throw Error(ErrorCode::io, fmt::format("{} cannot be written: {}{}", name(), reason_of(error), advice));
}

void OutputFile::refuse_inputs() const {
  struct stat facts {};
  if (::stat(target_.c_str(), &facts) != 0) return;
  for (const fs::path& input : rules_.inputs) {
    if (is_same_file(facts, input)) {
      refuse(path_ == input ? "it is read for this: name another file"
                            : fmt::format("it is {}, which is read for this: name another file", input.string()));
    }
    for (const char* ending : kBesideDatabase) {
      if (is_same_file(facts, input.string() + ending))
        refuse(fmt::format("it belongs to the database {}: name another file", input.string()));
    }
  }
}

// Looks at the bytes, since a database may have any name.
void OutputFile::refuse_database() const {
  int error = 0;
  const std::string head = head_of(target_, &error);
  if (error != 0) {
    throw Error(ErrorCode::io,
                fmt::format("{} is not written: whether it is a database cannot be seen ({}); name another file",
                            path_.string(), reason_of(error)));
  }
  const bool replaceable =
      (rules_.over_system_database && is_system_database(head)) || (rules_.over_pack && is_kernel_pack(head));
  if (is_sqlite(head) && !replaceable) {
    refuse(
        rules_.over_system_database
            ? "it is a database that `attune db ship` did not make, or that was changed since: name another file, or "
              "move that one away first"
            : "it is a database: name another file, or move that one away first");
  }
  const std::string name = target_.string();
  for (const std::string_view ending : kBesideDatabase) {
    if (!name.ends_with(ending)) continue;
    const fs::path database = name.substr(0, name.size() - ending.size());
    if (is_sqlite(head_of(database, &error)))
      refuse(fmt::format("it belongs to the database {}: name another file", database.string()));
  }
}

void OutputFile::open_through(int flags) {
  descriptor_ = ::open(path_.c_str(), flags);
  if (descriptor_ < 0) fail(errno);
}

void OutputFile::open_temporary() {
  // The folder stays the same one whatever becomes of its name.
  folder_ = ::open(folder_of(target_).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) fail(errno);
  constexpr mode_t kModeOfUmask = 0666;
  // Without a name nothing can be left behind. It gets one through /proc.
  if (::access("/proc/self/fd", X_OK) == 0) {
    descriptor_ = ::openat(folder_, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, kModeOfUmask);
    if (descriptor_ >= 0) return;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL) fail(errno);
  }
  held_ = std::make_unique<HeldSignals>();
  do {
    temporary_ = unpredictable_name(target_);
    descriptor_ =
        ::openat(folder_, temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kModeOfUmask);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail(error);
  }
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void OutputFile::commit() {
  if (!target_.empty()) {
    put_in_place();
    return;
  }
  // Some file systems say only now that there is no space.
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
}

void OutputFile::put_in_place() {
  struct stat facts {};
  if (::stat(target_.c_str(), &facts) == 0) {
    // Another's file stays another's where this process may give it back; then its mode, which giving may change.
    const bool own = ::fchown(descriptor_, facts.st_uid, facts.st_gid) == 0;
    constexpr mode_t kPermissions = 0777, kAll = 07777;
    if (::fchmod(descriptor_, facts.st_mode & (own ? kAll : kPermissions)) != 0) fail(errno);
  }
  if (::fsync(descriptor_) != 0 && errno != EINVAL) fail(errno);
  if (!held_) held_ = std::make_unique<HeldSignals>();
  if (temporary_.empty()) {
    const std::string self = fmt::format("/proc/self/fd/{}", descriptor_);
    std::string name;
    int failed = 0;
    do {
      name = unpredictable_name(target_);
      failed = ::linkat(AT_FDCWD, self.c_str(), folder_, name.c_str(), AT_SYMLINK_FOLLOW);
    } while (failed != 0 && errno == EEXIST);
    if (failed != 0) fail(errno);
    temporary_ = name;
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  if (::renameat(folder_, temporary_.c_str(), folder_, target_.filename().c_str()) != 0) fail(errno);
  temporary_.clear();
  held_.reset();
  // Old or new, a file is whole even if the folder is not flushed: where that cannot be done it is no failure.
  const int folder = ::openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

void write_output_file(const fs::path& path, std::string_view bytes, const OutputRules& rules) {
  OutputFile file(path, rules);
  file.write(bytes);
  file.commit();
}

void require_writable_output(const fs::path& path, const OutputRules& rules) {
  struct stat facts {};
  // Opening a pipe waits for its reader, who would then see its end.
  const bool pipe = ::stat(path.c_str(), &facts) == 0 && S_ISFIFO(facts.st_mode);
  if (!pipe) const OutputFile probe(path, rules);
}

}  // namespace attune
