#include "tuner/database/file_state.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "tuner/database/sqlite.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr std::size_t kHeaderBytes = 100;

}  // namespace

bool may(const fs::path& path, int how) { return ::faccessat(AT_FDCWD, path.c_str(), how, AT_EACCESS) == 0; }

FileState state_of(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  const auto nanoseconds = [](const timespec& time) {
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  };
  return {facts.st_dev, facts.st_ino, static_cast<std::uint64_t>(facts.st_size), nanoseconds(facts.st_mtim),
          nanoseconds(facts.st_ctim)};
}

std::string no_file_because(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    return errno == ENOENT ? std::string("there is no such database") : std::string(std::strerror(errno));
  if (S_ISDIR(facts.st_mode)) return "it is a folder";
  if (!S_ISREG(facts.st_mode)) return "it is no regular file";
  if (!may(path, R_OK)) return std::strerror(errno);
  return {};
}

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  if (error) throw sqlite::Failure{SQLITE_CANTOPEN, error.message()};
  return target;
}

DatabaseHeader::DatabaseHeader(const fs::path& path) {
  if (state_of(path).bytes == 0) return;
  bytes = sqlite::RawFile(path).read(0, kHeaderBytes);
}

bool DatabaseHeader::is_database() const { return bytes.starts_with(kMagic); }

bool DatabaseHeader::uses_write_ahead_log() const { return bytes.size() == kHeaderBytes && bytes[19] == 2; }

std::int64_t DatabaseHeader::application() const {
  std::uint32_t id = 0;
  if (bytes.size() == kHeaderBytes) {
    for (std::size_t i = 68; i < 72; ++i) id = id << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return id;
}

}  // namespace attune
