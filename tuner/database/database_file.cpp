#include "tuner/database/database_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "tuner/database/database_schema.h"
#include "tuner/database/file_system.h"
#include "tuner/database/measurement.h"

namespace attune {

// Every DatabaseFile of this process. SQLite believes that a process owns the locks it took, which a fork copies into
// the child; and the child's close would drop the parent's. So nothing is open while a process forks.
class LiveFiles {
 public:
  // Never destroyed: a process may fork while its static objects are.
  static LiveFiles& all() {
    static LiveFiles& made = *new LiveFiles;
    return made;
  }
  void add(DatabaseFile* file) {
    const std::lock_guard lock(mutex_);
    files_.push_back(file);
  }
  void remove(DatabaseFile* file) {
    const std::lock_guard lock(mutex_);
    std::erase(files_, file);
  }

 private:
  LiveFiles() { ::pthread_atfork(before_fork, after_fork, after_fork); }

  static void before_fork() {
    LiveFiles& live = all();
    live.mutex_.lock();
    for (DatabaseFile* file : live.files_) {
      file->mutex_.lock();
      file->writing_.reset();
      file->reading_.reset();
    }
  }
  static void after_fork() {
    LiveFiles& live = all();
    for (DatabaseFile* file : live.files_) file->mutex_.unlock();
    live.mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<DatabaseFile*> files_;
};

namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;

// A Failure's code 0 is none of SQLite's: its message is a whole sentence. So is that of a schema that is too new.
constexpr int kNewer = -1;
constexpr int kBusyMilliseconds = 10'000;
constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr std::size_t kHeaderBytes = 100;
constexpr int kMostAttempts = 20;  // to read a file that others write to; the later half from a copy

bool is_corruption(const Failure& failure) {
  return failure.primary() == SQLITE_NOTADB || failure.primary() == SQLITE_CORRUPT;
}

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

// What keeps a path from being a file to read; empty if nothing does. Nothing is opened: a pipe would wait for ever.
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
  if (error) throw Failure{SQLITE_CANTOPEN, error.message()};
  return target;
}

// The fields of a database's first bytes; of a file that is too short for them all is 0.
struct Header {
  explicit Header(const fs::path& path) {
    if (state_of(path).bytes == 0) return;
    bytes = sqlite::RawFile(path).read(0, kHeaderBytes);
  }
  bool is_database() const { return bytes.starts_with(kMagic); }
  bool uses_write_ahead_log() const { return bytes.size() == kHeaderBytes && bytes[19] == 2; }
  std::int64_t application() const {
    std::uint32_t id = 0;
    if (bytes.size() == kHeaderBytes) {
      for (std::size_t i = 68; i < 72; ++i) id = id << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return id;
  }

  std::string bytes;
};

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

// A folder of this process alone, and what is in it, gone with the object.
class PrivateFolder {
 public:
  explicit PrivateFolder(const fs::path& parent) {
    std::string name = (parent / "attune-read-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Failure{SQLITE_CANTOPEN,
                    fmt::format("it cannot be copied into {} ({})", parent.string(), std::strerror(errno))};
    path_ = name;
  }
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void copy_database(const fs::path& from, const fs::path& to) {
  sqlite::RawFile source(from);
  std::ofstream copy(to, std::ios::binary);
  constexpr std::size_t kBlock = 1 << 20;
  std::int64_t at = 0;
  for (std::string block = source.read(at, kBlock); !block.empty() && copy; block = source.read(at, kBlock)) {
    copy << block;
    at += static_cast<std::int64_t>(block.size());
  }
  copy.close();
  if (!copy) throw Failure{SQLITE_FULL, "there is no space for a copy of it in " + to.parent_path().string()};
}

// A connection to a copy of the file with its log or its journal, whose files are gone already.
std::unique_ptr<Connection> connect_to_copy(const fs::path& path, const fs::path& parent) {
  const PrivateFolder folder(parent);
  const fs::path copy = folder.path() / "copy.db";
  for (int attempt = 1;; ++attempt) {
    const FileState before = state_of(path);
    copy_database(path, copy);
    for (const char* suffix : {"-wal", "-journal"}) {
      std::error_code error;
      const fs::path beside = path.string() + suffix;
      fs::remove(copy.string() + suffix, error);
      if (state_of(beside).inode == 0) continue;
      fs::copy_file(beside, copy.string() + suffix, error);
      if (error && state_of(beside).inode != 0)
        throw Failure{SQLITE_CANTOPEN, fmt::format("{}: {}", beside.string(), error.message())};
    }
    // A log that grew meanwhile is one of a later moment; a file that changed is of none.
    if (state_of(path) == before) break;
    if (attempt == kMostAttempts) throw Failure{SQLITE_BUSY, "it changes faster than it can be copied"};
    sqlite3_sleep(attempt);
  }
  auto connection = std::make_unique<Connection>(copy.string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX);
  sqlite3_db_config(connection->handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  connection->execute("PRAGMA locking_mode = EXCLUSIVE");  // the log's index stays in memory
  connection->integer("SELECT count(*) FROM sqlite_schema");
  return connection;
}

void choose_journal(const fs::path& path, Connection& connection) {
  if (file_system_of(folder_of(path)).network) {
    connection.execute("PRAGMA journal_mode = DELETE");
    return;
  }
  // The busy handler is not asked while the mode changes: several programs may begin the same file at once.
  constexpr int kPatience = kBusyMilliseconds / 10;
  for (int attempt = 0;; ++attempt) {
    try {
      connection.execute("PRAGMA journal_mode = WAL");
      return;
    } catch (const Failure& failure) {
      if (failure.primary() != SQLITE_BUSY || attempt == kPatience) throw;
      sqlite3_sleep(10);
    }
  }
}

std::string newer_sentence(const fs::path& path, const SchemaFacts& facts) {
  return fmt::format(
      "{} was written by a newer Attune (schema {}, this program knows {}); it is read, results are not "
      "stored in it",
      path.string(), facts.version, schema_version());
}

}  // namespace

void check_integrity(Connection& connection) {
  const std::string verdict = connection.text("PRAGMA quick_check(1)");
  if (verdict == "ok") return;
  // A page that could not be read is told in the same way as one that is damaged.
  constexpr std::string_view kCode = "error code=";
  if (const std::size_t at = verdict.find(kCode); at != std::string::npos) {
    const int code = std::atoi(verdict.c_str() + at + kCode.size());
    if ((code & 0xff) == SQLITE_IOERR) throw Failure{code, verdict};
  }
  constexpr std::string_view kHeading = "***\n";  // "*** in database main ***", a line of its own
  const std::size_t heading = verdict.find(kHeading);
  throw Failure{SQLITE_CORRUPT, heading == std::string::npos ? verdict : verdict.substr(heading + kHeading.size())};
}

SchemaFacts usable_schema(const fs::path& path, Connection& connection) {
  SchemaFacts facts = inspect_schema(connection);
  if (!facts.is_attunes()) {
    throw Failure{0, fmt::format("{} is not a tuning database but another program's; it is left alone. Name another "
                                 "file with --database or ATTUNE_DATABASE",
                                 path.string())};
  }
  if (!facts.differences.empty()) {
    throw Failure{0, fmt::format("the tables of {} are not as Attune makes them, and are neither read nor written "
                                 "({}); `attune db doctor --database {}` says what to do",
                                 path.string(), describe(facts.differences.front(), facts), shell_word(path.string()))};
  }
  return facts;
}

std::string not_writable_because(const fs::path& path) {
  std::error_code ignored;
  const bool exists = fs::exists(path, ignored);
  if (may(folder_of(path), W_OK) && (!exists || may(path, W_OK))) return {};
  if (!exists) return fmt::format("{} cannot be created: its folder is read-only", path.string());
  return fmt::format("{} is read-only; results are not stored in it", path.string());
}

std::string explain(const fs::path& path, const Failure& failure) {
  const bool out_of_space =
      failure.primary() == SQLITE_FULL || (failure.primary() == SQLITE_IOERR && is_full(folder_of(path)));
  if (out_of_space) return "the disk is full; free some space and run again, what was stored before is intact";
  if (failure.code == 0 || failure.code == kNewer) return failure.message;
  if (failure.primary() == SQLITE_BUSY) {
    return fmt::format("another process has kept it locked for {} s; run again when that one has ended",
                       kBusyMilliseconds / 1000);
  }
  return fmt::format("{} (SQLite code {})", failure.message, failure.code);
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
  const Header header(path_);
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
  std::error_code error;
  const fs::path usual = fs::temp_directory_path(error);
  try {
    connection_ = connect_to_copy(path_, usual.empty() ? "/tmp" : usual);
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
    ReadingConnection reading(path, attempt <= kMostAttempts / 2 ? ReadingConnection::Manner::in_place
                                                                 : ReadingConnection::Manner::from_a_copy);
    try {
      question(reading);
      if (reading.undisturbed()) return;
    } catch (const Failure&) {
      if (reading.undisturbed()) throw;
    }
    if (attempt == kMostAttempts) throw Failure{SQLITE_BUSY, "it changes faster than it can be read"};
  }
}

DatabaseFile::DatabaseFile(fs::path path, Use use, std::string_view image)
    : path_(std::move(path)), use_(use), image_(image) {
  LiveFiles::all().add(this);
  const std::lock_guard lock(mutex_);
  open();
}

DatabaseFile::~DatabaseFile() {
  // Closed before it is forgotten: a fork of another thread waits for either.
  {
    const std::lock_guard lock(mutex_);
    writing_.reset();
    reading_.reset();
  }
  LiveFiles::all().remove(this);
}

std::string DatabaseFile::explain(const Failure& failure) const { return attune::explain(path_, failure); }

void DatabaseFile::ask(const Question& question) {
  const std::lock_guard lock(mutex_);
  ask_locked(question);
}

void DatabaseFile::ask_locked(const Question& question) {
  for (int attempt = 1;; ++attempt) {
    manner_ =
        attempt <= kMostAttempts / 2 ? ReadingConnection::Manner::in_place : ReadingConnection::Manner::from_a_copy;
    try {
      question(current());
      if (!reading_ || reading_->undisturbed()) return;
    } catch (const Failure& failure) {
      if (!reading_ || reading_->undisturbed()) {
        if (is_corruption(failure) || failure.primary() == SQLITE_IOERR) reading_.reset();
        throw;
      }
    }
    reading_.reset();
    if (attempt == kMostAttempts) throw Failure{SQLITE_BUSY, "it changes faster than it can be read"};
  }
}

void DatabaseFile::change(const Question& action) {
  const std::lock_guard lock(mutex_);
  drop_if_moved();
  if (!writing_) connect_for_writing();
  try {
    action(*writing_);
  } catch (const Failure& failure) {
    // The next one begins with what it finds on the disk.
    const int code = failure.primary();
    if (code == SQLITE_IOERR || code == SQLITE_READONLY || code == SQLITE_CANTOPEN || is_corruption(failure))
      writing_.reset();
    throw;
  }
}

// The connection to ask: opened again after a fork, or where others have written.
Connection& DatabaseFile::current() {
  drop_if_moved();
  if (writing_) return *writing_;
  if (writes_) {
    try {
      connect_for_writing();
      return *writing_;
    } catch (const Failure&) {
      // What cannot be written for now may still be read.
    }
  } else if (use_ == Use::shipped && unreadable_because_.empty()) {
    connect_to_shipped();
    return *writing_;
  }
  if (unreadable_because_.empty()) {
    if (reading_ && !reading_->is_fresh()) reading_.reset();
    if (!reading_) connect_for_reading();
    if (begun_) return reading_->connection();
  }
  if (!empty_) {
    empty_ = std::make_unique<Connection>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
    migrate(*empty_);
  }
  return *empty_;
}

// A file that was renamed or removed under the connection takes rows that nobody would find.
void DatabaseFile::drop_if_moved() {
  int moved = 0;
  if (writing_ && use_ == Use::write) sqlite3_file_control(writing_->handle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (moved != 0) writing_.reset();
}

void DatabaseFile::open() {
  if (path_.empty()) {
    stand_empty("there is no place for the tuning database: set HOME, XDG_DATA_HOME or ATTUNE_DATABASE");
    return;
  }
  switch (use_) {
    case Use::write:
      begin_writing();
      break;
    case Use::read:
      begin_reading(fmt::format("{} was opened for reading", path_.string()));
      break;
    case Use::shipped:
      read_only_because_ = "it is the system database, which is only read";
      try {
        connect_to_shipped();
      } catch (const Failure& failure) {
        writing_.reset();
        stand_empty(
            fmt::format("the system database {} cannot be read ({}); it is not used", path_.string(), failure.message));
      }
      break;
  }
}

void DatabaseFile::begin_reading(const std::string& read_only_because) {
  read_only_because_ = read_only_because;
  try {
    if (const std::string reason = no_file_because(path_); !reason.empty()) throw Failure{SQLITE_CANTOPEN, reason};
    ask_locked([&](Connection& connection) {
      const SchemaFacts facts = inspect_schema(connection);
      if (!facts.is_newer()) return;
      const std::string note = newer_sentence(path_, facts);
      if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
    });
  } catch (const Failure& failure) {
    reading_.reset();
    if (failure.code == 0) {
      stand_empty(failure.message);
    } else if (failure.primary() == SQLITE_NOTADB) {
      stand_empty(fmt::format("{} is not a tuning database ({}); it is left alone", path_.string(), failure.message));
    } else if (is_corruption(failure)) {
      stand_empty(
          fmt::format("{} is corrupt ({}); `attune db export --database {} --output saved.json` saves what can "
                      "be read of it",
                      path_.string(), failure.message, shell_word(path_.string())));
    } else {
      stand_empty(fmt::format("{} cannot be read: {}", path_.string(), explain(failure)));
    }
  }
}

void DatabaseFile::begin_writing() {
  std::error_code error;
  fs::create_directories(folder_of(path_), error);
  if (error && !fs::exists(folder_of(path_))) {
    stand_empty(fmt::format("the folder {} cannot be created ({})", folder_of(path_).string(), error.message()));
    return;
  }
  const bool exists = fs::exists(path_, error);
  if (!exists && fs::is_symlink(path_, error)) {
    stand_empty(
        fmt::format("{} is a link to a file that does not exist, and none is begun through a link: name the "
                    "file itself",
                    path_.string()));
    return;
  }
  try {
    if (exists && !may_be_written()) return;
    if (const std::string reason = not_writable_because(path_); !reason.empty()) {
      exists ? read_instead(reason) : stand_empty(reason);
      return;
    }
    if (const FileSystem file_system = file_system_of(folder_of(path_)); file_system.network) {
      notes_.push_back(fmt::format(
          "{} is on {}, where write-ahead logging does not work: a rollback journal is used, and writers wait "
          "for each other longer",
          path_.string(), file_system.name));
    }
    connect_for_writing();
    writes_ = true;
  } catch (const Failure& failure) {
    writing_.reset();
    if (failure.code == kNewer) {
      read_instead(failure.message);
    } else if (failure.code == 0) {
      stand_empty(failure.message);
    } else if (is_corruption(failure)) {
      replace_corrupt_file(failure.message);
    } else if (exists && state_of(path_).bytes > 0) {
      read_instead(fmt::format("{} cannot be written: {}", path_.string(), explain(failure)));
    } else {
      stand_empty(fmt::format("{} cannot be opened: {}", path_.string(), explain(failure)));
    }
  }
}

// Whether what is there is a sound tuning database, or empty; of anything else stands empty. Throws Failure for what is
// damaged, but was a tuning database. Nothing of a file is changed before that is known.
bool DatabaseFile::may_be_written() {
  const auto leave_alone = [&](const std::string& what) {
    stand_empty(fmt::format("{} {}; it is left alone. Name another file with --database or ATTUNE_DATABASE",
                            path_.string(), what));
    return false;
  };
  if (const std::string reason = no_file_because(path_); !reason.empty())
    return leave_alone("cannot be used: " + reason);
  if (state_of(path_).bytes == 0) return true;
  const Header header(resolved(path_));  // empty for SQLite, and so not a database, where a single byte is there
  if (!header.is_database()) return leave_alone("is not a tuning database (it is no SQLite file)");
  try {
    ask_file(path_, [&](ReadingConnection& reading) {
      Connection& connection = reading.connection();
      if (!inspect_schema(connection).is_attunes()) usable_schema(path_, connection);
      check_integrity(connection);
      usable_schema(path_, connection);
    });
  } catch (const Failure& failure) {
    if (!is_corruption(failure) || header.application() == kApplicationId) throw;
    return leave_alone(
        fmt::format("is corrupt ({}), and nothing in it says that it was a tuning database", failure.message));
  }
  checked_ = true;
  return true;
}

void DatabaseFile::connect_to_shipped() {
  const bool is_file = image_.empty();
  if (const std::string reason = is_file ? no_file_because(path_) : ""; !reason.empty())
    throw Failure{SQLITE_CANTOPEN, reason};
  auto connection = is_file ? connect_immutable(path_) : connect_to_image(image_);
  if (!checked_) check_integrity(*connection);
  const SchemaFacts facts = usable_schema(path_, *connection);
  if (facts.empty) throw Failure{SQLITE_NOTADB, "it is empty"};
  read_as_newest(*connection, facts.version);
  checked_ = true;
  writing_ = std::move(connection);
}

void DatabaseFile::connect_for_reading() {
  reading_ = std::make_unique<ReadingConnection>(path_, manner_);
  Connection& connection = reading_->connection();
  if (!checked_) check_integrity(connection);
  const SchemaFacts facts = usable_schema(path_, connection);
  begun_ = !facts.empty;
  read_as_newest(connection, facts.version);
  checked_ = true;
}

void DatabaseFile::connect_for_writing() {
  writing_ =
      std::make_unique<Connection>(path_.string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
  try {
    sqlite3_busy_timeout(writing_->handle(), kBusyMilliseconds);
    if (writing_->read_only()) throw Failure{SQLITE_READONLY, "it is read-only"};
    if (!checked_) check_integrity(*writing_);
    if (const SchemaFacts facts = usable_schema(path_, *writing_); facts.is_newer())
      throw Failure{kNewer, newer_sentence(path_, facts)};
    choose_journal(path_, *writing_);
    // Durable when a commit returns, power cuts included.
    writing_->execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
    migrate(*writing_);
    checked_ = true;
  } catch (const Failure&) {
    writing_.reset();
    throw;
  }
}

void DatabaseFile::read_instead(const std::string& note) {
  notes_.push_back(note);
  begin_reading(note);
}

// An empty database in memory, so that every question has an answer: nothing is known.
void DatabaseFile::stand_empty(const std::string& note) {
  if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
  read_only_because_ = note;
  unreadable_because_ = note;
}

void DatabaseFile::replace_corrupt_file(const std::string& cause) {
  std::error_code error;
  if (fs::is_symlink(path_, error)) {
    stand_empty(
        fmt::format("{} is a link to {}, which is corrupt ({}) and is not moved through a link: move it, or "
                    "name another file with --database or ATTUNE_DATABASE",
                    path_.string(), fs::canonical(path_, error).string(), cause));
    return;
  }
  const FolderLock lock(folder_of(path_));
  try {
    // Another process may have replaced it while this one waited.
    try {
      if (!may_be_written()) return;
    } catch (const Failure& failure) {
      if (!is_corruption(failure)) throw;
      const fs::path aside = keep_aside(error);
      if (error) {
        stand_empty(fmt::format("{} is corrupt ({}) and could not be moved aside ({}); results are not stored",
                                path_.string(), cause, error.message()));
        return;
      }
      notes_.push_back(
          fmt::format("{} was corrupt ({}): it is kept as {}, and a fresh database was begun; `attune db "
                      "export --database {} --output saved.json` saves what can be read of it",
                      path_.string(), cause, aside.string(), shell_word(aside.string())));
    }
    connect_for_writing();
    writes_ = true;
  } catch (const Failure& failure) {
    stand_empty(fmt::format("{} cannot be opened: {}", path_.string(), explain(failure)));
  }
}

// Moves the file and its log, which belong together. The log goes first: a fresh database must not find it.
fs::path DatabaseFile::keep_aside(std::error_code& error) const {
  std::string stamp = utc_now();
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  fs::path aside = path_.string() + ".corrupt-" + stamp;
  for (int number = 2; fs::exists(fs::symlink_status(aside, error)); ++number)
    aside = fmt::format("{}.corrupt-{}-{}", path_.string(), stamp, number);
  constexpr std::array kBeside = {"-wal", "-shm", "-journal"};
  std::error_code absent;
  for (const char* suffix : kBeside) fs::rename(path_.string() + suffix, aside.string() + suffix, absent);
  fs::rename(path_, aside, error);
  if (error) {
    for (const char* suffix : kBeside) fs::rename(aside.string() + suffix, path_.string() + suffix, absent);
  }
  return aside;
}

}  // namespace attune
