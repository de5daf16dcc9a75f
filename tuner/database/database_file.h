#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/database/database_schema.h"
#include "tuner/database/sqlite.h"

namespace attune {

/// Which state of a file's bytes was seen.
struct FileState {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  ///< since the epoch; of a file that is not there all is 0
  friend bool operator==(const FileState&, const FileState&) = default;
};

/// A connection that only reads, and leaves everything as it is: it creates, renames and changes no file, not even
/// the log's index beside the database. Not thread-safe.
///
///   a log that holds rows, or a journal to roll back     a private copy, which goes away with the connection
///   write-ahead logging without a log                    the file itself, without locks: see undisturbed()
///   otherwise                                            the file itself, under SQLite's locks
class ReadingConnection {
 public:
  enum class Manner { in_place, from_a_copy };
  /// Throws sqlite::Failure: SQLITE_NOTADB for what is no database, SQLITE_CANTOPEN with the reason in words for what
  /// is no regular file or cannot be opened. An empty file is an empty database.
  explicit ReadingConnection(const std::filesystem::path& path, Manner manner = Manner::in_place);

  sqlite::Connection& connection() { return *connection_; }
  /// Nobody wrote to the file since it was opened: what was read without locks is of one moment.
  bool undisturbed() const;
  /// It shows what the file and its log hold now.
  bool is_fresh() const;
  bool uses_write_ahead_log() const { return write_ahead_log_; }

 private:
  void open_in_place();
  void open_copy();

  std::filesystem::path path_;  // links resolved
  FileState file_, log_;
  bool write_ahead_log_ = false, locked_ = true, settled_ = true;
  std::unique_ptr<sqlite::Connection> connection_;
};

/// Asks a file as ReadingConnection does, again if somebody wrote meanwhile: `question` may be asked several times, and
/// only the last answer counts. Throws sqlite::Failure.
void ask_file(const std::filesystem::path& path, const std::function<void(ReadingConnection&)>& question);

/// The file of a tuning database, opened as TuningDatabase promises: always to something that answers, with a sentence
/// in notes() for whatever was found amiss. Thread-safe. No connection crosses a fork: all are closed before it, and
/// opened again by the next question, in the parent and in the child.
class DatabaseFile {
 public:
  enum class Use {
    write,    ///< created, migrated, written; a damaged one is kept aside
    read,     ///< read as ReadingConnection does
    shipped,  ///< a system's: opened immutable, so that not even a lock is taken; stays the file that was opened
  };
  /// `image`: the bytes of a shipped database that is part of the program and outlives this; the path is its name then.
  DatabaseFile(std::filesystem::path path, Use use, std::string_view image = {});
  ~DatabaseFile();
  DatabaseFile(const DatabaseFile&) = delete;
  DatabaseFile& operator=(const DatabaseFile&) = delete;

  using Question = std::function<void(sqlite::Connection&)>;
  /// Asks for something. The question may be put several times. Throws sqlite::Failure.
  void ask(const Question& question);
  /// Changes something, once; only where read_only() is false. Throws sqlite::Failure.
  void change(const Question& action);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool read_only() const { return !read_only_because_.empty(); }
  const std::string& read_only_because() const { return read_only_because_; }
  /// Why it stands as an empty database although its file is there or should be; empty if that is read.
  const std::string& unreadable_because() const { return unreadable_because_; }

  /// What to tell a person about a failed query or write.
  std::string explain(const sqlite::Failure& failure) const;

 private:
  friend class LiveFiles;
  void open();
  void begin_reading(const std::string& read_only_because);
  void begin_writing();
  bool may_be_written();
  void connect_to_shipped();
  void connect_for_reading();
  void connect_for_writing();
  void read_instead(const std::string& note);
  void stand_empty(const std::string& note);
  void replace_corrupt_file(const std::string& cause);
  std::filesystem::path keep_aside(std::error_code& error) const;
  void ask_locked(const Question& question);
  sqlite::Connection& current();
  void drop_if_moved();

  const std::filesystem::path path_;
  const Use use_;
  const std::string_view image_;
  // Settled by the constructor.
  std::vector<std::string> notes_;
  std::string read_only_because_, unreadable_because_;
  bool writes_ = false;

  std::mutex mutex_;      // guards what follows; held while a process forks
  bool checked_ = false;  // its pages were looked at once
  ReadingConnection::Manner manner_ = ReadingConnection::Manner::in_place;
  std::unique_ptr<sqlite::Connection> writing_;  // or to the shipped file
  std::unique_ptr<ReadingConnection> reading_;
  bool begun_ = false;                         // what is read has tables
  std::unique_ptr<sqlite::Connection> empty_;  // in memory
};

/// What to tell a person about a failed query or write of a file.
std::string explain(const std::filesystem::path& path, const sqlite::Failure& failure);

/// What inspect_schema() finds. Throws sqlite::Failure of code 0, its message a whole sentence, for tables that are not
/// to be read: another program's, or not as Attune makes them.
SchemaFacts usable_schema(const std::filesystem::path& path, sqlite::Connection& connection);

/// Why this process could not write to the file, as far as permissions say; empty if it could.
std::string not_writable_because(const std::filesystem::path& path);

/// Throws sqlite::Failure with what SQLite's own quick check of pages and types finds first; SQLITE_IOERR where the
/// file cannot be read, SQLITE_CORRUPT where it is damaged.
void check_integrity(sqlite::Connection& connection);

}  // namespace attune
