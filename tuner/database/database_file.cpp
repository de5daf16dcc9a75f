#include "tuner/database/database_file.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <system_error>

#include "tuner/database/database_checks.h"
#include "tuner/database/database_lock.h"
#include "tuner/database/database_schema.h"
#include "tuner/database/file_state.h"
#include "tuner/database/file_system.h"
#include "tuner/database/journal_mode.h"
#include "tuner/database/keep_aside.h"
#include "tuner/database/live_files.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;

// SQLite reads the bytes where they are.
std::unique_ptr<Connection> connect_to_image(std::string_view image) {
  auto connection = std::make_unique<Connection>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX);
  auto* const bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(image.data()));
  const auto size = static_cast<sqlite3_int64>(image.size());
  const int code = sqlite3_deserialize(connection->handle(), "main", bytes, size, size, SQLITE_DESERIALIZE_READONLY);
  if (code != SQLITE_OK) sqlite::fail(code, sqlite3_errmsg(connection->handle()));
  return connection;
}

}  // namespace

DatabaseFile::DatabaseFile(fs::path path, Use use, std::string_view image)
    : path_(std::move(path)), use_(use), image_(image) {
  LiveFiles::all().add(this);
  try {
    const std::lock_guard lock(mutex_);
    open();
  } catch (...) {  // no memory: without an object nobody may look at it
    close_and_forget();
    throw;
  }
}

DatabaseFile::~DatabaseFile() { close_and_forget(); }

// Closed before it is forgotten: no fork comes in between.
void DatabaseFile::close_and_forget() {
  const std::lock_guard lock(mutex_);
  close();
  LiveFiles::all().remove(this);
}

void DatabaseFile::close() {
  writing_.reset();
  reading_.reset();
}

std::string DatabaseFile::explain(const Failure& failure) const { return attune::explain(path_, failure); }

void DatabaseFile::ask(const Question& question) {
  const std::lock_guard lock(mutex_);
  ask_locked(question);
}

void DatabaseFile::ask_locked(const Question& question) {
  for (int attempt = 1;; ++attempt) {
    manner_ =
        attempt <= kMostReadAttempts / 2 ? ReadingConnection::Manner::in_place : ReadingConnection::Manner::from_a_copy;
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
    if (attempt == kMostReadAttempts) throw Failure{SQLITE_BUSY, "it changes faster than it can be read"};
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
  } catch (const std::bad_alloc&) {
    writing_.reset();  // a transaction may be open that no memory was there to roll back
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
    auto empty =
        std::make_unique<Connection>(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
    migrate(*empty);
    empty_ = std::move(empty);
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
        label_ = read_label(*writing_);
      } catch (const Failure& failure) {
        writing_.reset();
        stand_empty(
            fmt::format("the system database {} cannot be read ({}); it is not used: `attune db ship` makes one, and "
                        "ATTUNE_SYSTEM_DATABASE names those that are used",
                        path_.string(), failure.message));
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
  // What is whole is opened at once, and what is somebody else's is not touched, not even by a lock beside it.
  if (try_to_write(false)) return;
  // Others may begin the same file at this moment, or put a corrupt one aside: what stands between is seen by none.
  const DatabaseLock lock(path_);
  if (lock.state() == DatabaseLock::State::busy) {
    const std::string reason = fmt::format("{} cannot be opened for writing: {}", path_.string(), lock.complaint());
    state_of(path_).bytes > 0 ? read_instead(reason) : stand_empty(reason);
    return;
  }
  if (!lock.complaint().empty()) notes_.push_back(lock.complaint());
  try_to_write(true);
}

// Opens what is there for writing, or settles what it stands for. False, with nothing changed, if that takes the lock:
// to begin a file, to put a corrupt one aside, or because another process may be doing one of these.
bool DatabaseFile::try_to_write(bool locked) {
  std::error_code error;
  const FileState before = state_of(path_);
  const bool exists = before.inode != 0;
  if (!exists && fs::is_symlink(path_, error)) {
    stand_empty(
        fmt::format("{} is a link to a file that does not exist, and none is begun through a link: name the "
                    "file itself",
                    path_.string()));
    return true;
  }
  try {
    begun_ = false;
    if (const std::string reason = exists ? not_ours_because() : ""; !reason.empty()) {
      if (!locked && !(state_of(path_) == before)) return false;
      stand_empty(reason);
      return true;
    }
    if (const std::string reason = not_writable_because(path_); !reason.empty()) {
      exists ? read_instead(reason) : stand_empty(reason);
      return true;
    }
    if (!locked && !begun_) return false;
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
    const bool refused = failure.code == kNewerSchema || failure.code == 0;
    if (!locked && !refused && !(is_corruption(failure) && fs::is_symlink(path_, error))) return false;
    if (failure.code == kNewerSchema) {
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
  return true;
}

// Why what is there is left alone: it never was a tuning database. Empty for a sound one, whose tables begun_ tells of,
// and for an empty file. Throws Failure for what is damaged, but was a tuning database. Nothing of a file is changed
// before that is known.
std::string DatabaseFile::not_ours_because() {
  const auto left_alone = [&](const std::string& what) {
    return fmt::format("{} {}; it is left alone. Name another file with --database or ATTUNE_DATABASE", path_.string(),
                       what);
  };
  if (const std::string reason = no_file_because(path_); !reason.empty())
    return left_alone("cannot be used: " + reason);
  if (state_of(path_).bytes == 0) return {};
  const DatabaseHeader header(
      resolved(path_));  // empty for SQLite, and so not a database, where a single byte is there
  if (!header.is_database()) return left_alone("is not a tuning database (it is no SQLite file)");
  try {
    ask_file(path_, [&](ReadingConnection& reading) {
      Connection& connection = reading.connection();
      if (!inspect_schema(connection).is_attunes()) usable_schema(path_, connection);
      check_integrity(connection);
      begun_ = !usable_schema(path_, connection).empty;
      check_indices(connection);
    });
  } catch (const Failure& failure) {
    if (!is_corruption(failure) || header.application() == kApplicationId) throw;
    return left_alone(
        fmt::format("is corrupt ({}), and nothing in it says that it was a tuning database", failure.message));
  }
  checked_ = true;
  return {};
}

void DatabaseFile::connect_to_shipped() {
  const bool is_file = image_.empty();
  if (const std::string reason = is_file ? no_file_because(path_) : ""; !reason.empty())
    throw Failure{SQLITE_CANTOPEN, reason};
  auto connection = is_file ? connect_immutable(path_) : connect_to_image(image_);
  if (!checked_) check_integrity(*connection);
  const SchemaFacts facts = usable_schema(path_, *connection);
  if (facts.empty) throw Failure{SQLITE_NOTADB, "it is empty"};
  if (!checked_ && is_file) check_indices(*connection);
  read_as_newest(*connection, facts.version);
  checked_ = true;
  writing_ = std::move(connection);
}

void DatabaseFile::connect_for_reading() {
  auto reading = std::make_unique<ReadingConnection>(path_, manner_);
  Connection& connection = reading->connection();
  reading_ = std::move(reading);  // ask_locked() asks it whether others wrote, where something is amiss
  try {
    if (!checked_) check_integrity(connection);
    const SchemaFacts facts = usable_schema(path_, connection);
    begun_ = !facts.empty;
    if (!checked_) check_indices(connection);
    read_as_newest(connection, facts.version);
  } catch (const std::bad_alloc&) {
    reading_.reset();  // half made
    throw;
  }
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
      throw Failure{kNewerSchema, newer_sentence(path_, facts)};
    if (!checked_) check_indices(*writing_);
    choose_journal(path_, *writing_);
    // Durable when a commit returns, power cuts included.
    writing_->execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
    migrate(*writing_);
    checked_ = true;
  } catch (...) {
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
  try {
    // Damage is what is seen twice: a read may have failed once.
    try {
      if (const std::string reason = not_ours_because(); !reason.empty()) return stand_empty(reason);
    } catch (const Failure& failure) {
      if (!is_corruption(failure)) throw;
      const fs::path aside = keep_aside(path_, error);
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

}  // namespace attune
