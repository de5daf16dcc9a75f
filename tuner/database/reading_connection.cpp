#include "tuner/database/reading_connection.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <string>
#include <system_error>

#include "runtime/system/scratch_folder.h"
#include "tuner/database/database_checks.h"
#include "tuner/database/database_copy.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;

std::string uri_of(const fs::path& path, const char* query) {
  std::string uri = "file:";
  for (const char c : fs::absolute(path).string()) {
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri + "?" + query;
}

}  // namespace

std::unique_ptr<Connection> connect_immutable(const fs::path& path) {
  return std::make_unique<Connection>(uri_of(path, "mode=ro&immutable=1"),
                                      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX);
}

ReadingConnection::ReadingConnection(const fs::path& path, Manner manner) {
  if (const std::string reason = no_file_because(path); !reason.empty()) throw Failure{SQLITE_CANTOPEN, reason};
  path_ = resolved(path);
  file_ = state_of(path_);
  log_ = state_of(path_.string() + "-wal");
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  // A clock that ticks slowly gives two writes one time.
  constexpr std::int64_t kTick = 20'000'000;
  settled_ = now.count() - std::max(file_.modified_ns, log_.modified_ns) > kTick;
  const DatabaseHeader header(path_);
  if (file_.bytes > 0 && !header.is_database()) throw Failure{SQLITE_NOTADB, "it is no SQLite file"};
  write_ahead_log_ = header.uses_write_ahead_log();
  if (manner == Manner::from_a_copy || log_.bytes > 0) {
    open_copy();
  } else {
    open_in_place();
  }
}

void ReadingConnection::open_in_place() {
  std::error_code ignored;
  // An empty log is as good as none, but SQLite would make its index beside it.
  if (write_ahead_log_ || log_.inode != 0) {
    locked_ = false;
    connection_ = connect_immutable(path_);
    return;
  }
  try {
    connection_ = std::make_unique<Connection>(path_.string(), SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX);
    sqlite3_busy_timeout(connection_->handle(), kBusyMilliseconds);
    connection_->integer("SELECT count(*) FROM sqlite_schema");
  } catch (const Failure& failure) {
    // What another program left half written is rolled back in a copy.
    if (is_corruption(failure) || !fs::exists(path_.string() + "-journal", ignored)) throw;
    open_copy();
  }
}

void ReadingConnection::open_copy() {
  locked_ = true;  // nobody else knows it
  try {
    connection_ = connect_to_copy(path_, temporary_files());
  } catch (const Failure& failure) {
    if (failure.primary() != SQLITE_FULL && failure.primary() != SQLITE_CANTOPEN && failure.primary() != SQLITE_IOERR)
      throw;
    connection_ = connect_to_copy(path_, "/dev/shm");
  }
}

bool ReadingConnection::undisturbed() const { return locked_ || state_of(path_) == file_; }

bool ReadingConnection::is_fresh() const {
  return settled_ && state_of(path_) == file_ && state_of(path_.string() + "-wal") == log_;
}

void ask_file(const fs::path& path, const std::function<void(ReadingConnection&)>& question) {
  for (int attempt = 1;; ++attempt) {
    ReadingConnection reading(path, attempt <= kMostReadAttempts / 2 ? ReadingConnection::Manner::in_place
                                                                     : ReadingConnection::Manner::from_a_copy);
    try {
      question(reading);
      if (reading.undisturbed()) return;
    } catch (const Failure&) {
      if (reading.undisturbed()) throw;
    }
    if (attempt == kMostReadAttempts) throw Failure{SQLITE_BUSY, "it changes faster than it can be read"};
  }
}

}  // namespace attune
