#include "tuner/database_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include "tuner/database_schema.h"
#include "tuner/file_system.h"
#include "tuner/measurement.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;

constexpr int kBusyMilliseconds = 10'000;

bool is_corruption(const Failure& failure) {
  return failure.primary() == SQLITE_NOTADB || failure.primary() == SQLITE_CORRUPT;
}

bool may_write(const fs::path& path) { return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0; }

// Held by the one process that replaces a corrupt file. Where the folder cannot be locked it is held by nobody.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX);
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

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

std::unique_ptr<Connection> connect_immutable(const fs::path& path) {
  return std::make_unique<Connection>(uri_of(path, "mode=ro&immutable=1"),
                                      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX);
}

// SQLite reads the bytes where they are.
std::unique_ptr<Connection> connect_to_image(std::string_view image) {
  auto connection = std::make_unique<Connection>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX);
  auto* const bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(image.data()));
  const auto size = static_cast<sqlite3_int64>(image.size());
  const int code = sqlite3_deserialize(connection->handle(), "main", bytes, size, size, SQLITE_DESERIALIZE_READONLY);
  if (code != SQLITE_OK) throw Failure{code, sqlite3_errmsg(connection->handle())};
  return connection;
}

void check_integrity(Connection& connection) {
  const std::string verdict = connection.text("PRAGMA quick_check(1)");
  if (verdict != "ok") throw Failure{SQLITE_CORRUPT, verdict};
}

}  // namespace

std::unique_ptr<Connection> connect_for_reading(const fs::path& path) {
  try {
    auto connection = std::make_unique<Connection>(path.string(), SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX);
    sqlite3_busy_timeout(connection->handle(), kBusyMilliseconds);
    connection->integer("SELECT count(*) FROM sqlite_schema");
    return connection;
  } catch (const Failure& failure) {
    if (is_corruption(failure) || !fs::exists(path)) throw;
    // WAL wants to create files beside the database even for reading. Without a log there is nothing in it to miss.
    std::error_code error;
    const auto log_bytes = fs::file_size(path.string() + "-wal", error);
    if (!error && log_bytes > 0)
      throw Failure{failure.code, "its write-ahead log is not merged and its folder is read-only"};
    return connect_immutable(path);
  }
}

DatabaseFile::DatabaseFile(fs::path path, Use use, std::string_view image)
    : path_(std::move(path)), use_(use), image_(image), owner_(::getpid()) {
  open();
}

Connection& DatabaseFile::connection() {
  // The child of a fork leaves its parent's connection untouched, which closing it would not.
  if (owner_ != ::getpid()) {
    static_cast<void>(connection_.release());
    owner_ = ::getpid();
    open();
  }
  return *connection_;
}

std::string DatabaseFile::explain(const Failure& failure) const {
  const bool out_of_space =
      failure.primary() == SQLITE_FULL || (failure.primary() == SQLITE_IOERR && is_full(folder_of(path_)));
  if (out_of_space) return "the disk is full; free some space and run again, what was stored before is intact";
  if (failure.primary() == SQLITE_BUSY) {
    return fmt::format("another process has kept it locked for {} s; run again when that one has ended",
                       kBusyMilliseconds / 1000);
  }
  return fmt::format("{} (SQLite code {})", failure.message, failure.code);
}

void DatabaseFile::open() {
  if (use_ == Use::shipped) {
    open_shipped();
    return;
  }
  if (path_.empty()) {
    stand_empty("there is no place for the tuning database: set HOME, XDG_DATA_HOME or ATTUNE_DATABASE");
    return;
  }
  std::error_code error;
  fs::create_directories(folder_of(path_), error);
  if (error && !fs::exists(folder_of(path_))) {
    stand_empty(fmt::format("the folder {} cannot be created ({})", folder_of(path_).string(), error.message()));
    return;
  }
  try {
    open_file();
  } catch (const Failure& failure) {
    if (is_corruption(failure)) {
      replace_corrupt_file(failure.message);
    } else {
      stand_empty(fmt::format("{} cannot be opened: {}", path_.string(), explain(failure)));
    }
  }
}

void DatabaseFile::open_shipped() {
  try {
    connection_ = image_.empty() ? connect_immutable(path_) : connect_to_image(image_);
    check_integrity(*connection_);
    if (connection_->integer("PRAGMA application_id") != kApplicationId) {
      stand_empty(fmt::format("the system database {} is not a tuning database; it is not used", path_.string()));
      return;
    }
    read_as_newest(*connection_);
    read_only_ = true;
    read_only_because_ = "it is the system database, which is only read";
  } catch (const Failure& failure) {
    stand_empty(
        fmt::format("the system database {} cannot be read ({}); it is not used", path_.string(), failure.message));
  }
}

void DatabaseFile::open_file() {
  const bool exists = fs::exists(path_);
  if (!may_write(folder_of(path_)) || (exists && !may_write(path_))) {
    if (!exists) {
      stand_empty(fmt::format("{} cannot be created: its folder is read-only", path_.string()));
    } else {
      open_read_only(fmt::format("{} is read-only; results are not stored in it", path_.string()));
    }
    return;
  }
  connection_ =
      std::make_unique<Connection>(path_.string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
  sqlite3_busy_timeout(connection_->handle(), kBusyMilliseconds);
  if (connection_->read_only()) {
    open_read_only(fmt::format("{} is read-only; results are not stored in it", path_.string()));
    return;
  }
  if (!inspect()) return;
  choose_journal();
  // Durable when a commit returns, power cuts included.
  connection_->execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
  migrate(*connection_);
  read_only_ = false;
  read_only_because_.clear();
}

// Throws Failure for a corrupt file. False if this program must not write to it; then something else has been opened.
bool DatabaseFile::inspect() {
  check_integrity(*connection_);
  // As of one moment: another process may be beginning the file.
  connection_->execute("BEGIN");
  const std::int64_t tables = connection_->integer("SELECT count(*) FROM sqlite_schema");
  const std::int64_t application = connection_->integer("PRAGMA application_id");
  const std::int64_t version = connection_->integer("PRAGMA user_version");
  connection_->execute("COMMIT");
  if (application != kApplicationId && (application != 0 || tables > 0)) {
    stand_empty(
        fmt::format("{} is not a tuning database but another program's; it is left alone. Name another file with "
                    "ATTUNE_DATABASE",
                    path_.string()));
    return false;
  }
  if (version > schema_version()) {
    open_read_only(
        fmt::format("{} was written by a newer Attune (schema {}, this program knows {}); it is read, results are not "
                    "stored in it",
                    path_.string(), version, schema_version()));
    return false;
  }
  return true;
}

void DatabaseFile::choose_journal() {
  const FileSystem file_system = file_system_of(folder_of(path_));
  if (file_system.network) {
    notes_.push_back(fmt::format(
        "{} is on {}, where write-ahead logging does not work: a rollback journal is used, and writers wait "
        "for each other longer",
        path_.string(), file_system.name));
    connection_->execute("PRAGMA journal_mode = DELETE");
    return;
  }
  // The busy handler is not asked while the mode changes: several programs may begin the same file at once.
  const int kPatience = kBusyMilliseconds / 10;
  for (int attempt = 0;; ++attempt) {
    try {
      connection_->execute("PRAGMA journal_mode = WAL");
      return;
    } catch (const Failure& failure) {
      if (failure.primary() != SQLITE_BUSY || attempt == kPatience) throw;
      sqlite3_sleep(10);
    }
  }
}

void DatabaseFile::open_read_only(const std::string& note) {
  connection_.reset();
  try {
    connection_ = connect_for_reading(path_);
  } catch (const Failure& failure) {
    if (is_corruption(failure)) throw;
    stand_empty(fmt::format("{} cannot be read: {}", path_.string(), explain(failure)));
    return;
  }
  check_integrity(*connection_);
  if (connection_->integer("PRAGMA application_id") != kApplicationId) {
    stand_empty(fmt::format("{} is not a tuning database and cannot be written", path_.string()));
    return;
  }
  read_as_newest(*connection_);
  be_read_only(note);
}

// An empty database in memory, so that every question has an answer: nothing is known.
void DatabaseFile::stand_empty(const std::string& note) {
  connection_.reset();
  connection_ =
      std::make_unique<Connection>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
  migrate(*connection_);
  be_read_only(note);
}

void DatabaseFile::be_read_only(const std::string& note) {
  read_only_ = true;
  read_only_because_ = note;
  notes_.push_back(note);
}

void DatabaseFile::replace_corrupt_file(const std::string& cause) {
  connection_.reset();
  const FolderLock lock(folder_of(path_));
  try {
    // Another process may have replaced it while this one waited.
    try {
      Connection probe(path_.string(), SQLITE_OPEN_READWRITE);
      sqlite3_busy_timeout(probe.handle(), kBusyMilliseconds);
      check_integrity(probe);
    } catch (const Failure& failure) {
      if (!is_corruption(failure)) throw;
      std::error_code error;
      const fs::path aside = keep_aside(error);
      if (error) {
        stand_empty(fmt::format("{} is corrupt ({}) and could not be moved aside ({}); results are not stored",
                                path_.string(), cause, error.message()));
        return;
      }
      notes_.push_back(fmt::format("{} was corrupt ({}): it is kept as {}, and a fresh database was begun",
                                   path_.string(), cause, aside.string()));
    }
    open_file();
  } catch (const Failure& failure) {
    stand_empty(fmt::format("{} cannot be opened: {}", path_.string(), explain(failure)));
  }
}

// Moves the file and its log, which belong together.
fs::path DatabaseFile::keep_aside(std::error_code& error) const {
  std::string stamp = utc_now();
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  const fs::path aside = path_.string() + ".corrupt-" + stamp;
  fs::rename(path_, aside, error);
  if (error) return aside;
  for (const char* suffix : {"-wal", "-shm", "-journal"}) {
    std::error_code absent;
    fs::rename(path_.string() + suffix, aside.string() + suffix, absent);
  }
  return aside;
}

}  // namespace attune
