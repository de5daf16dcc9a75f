#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "tuner/database/file_state.h"
#include "tuner/database/sqlite.h"

namespace attune {

inline constexpr int kBusyMilliseconds = 10'000;  ///< for which a connection waits for another's lock
inline constexpr int kMostReadAttempts = 20;      ///< of a file that others write to; the later half from a copy

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

/// A connection that takes no lock, to a file that nobody changes. Throws sqlite::Failure.
std::unique_ptr<sqlite::Connection> connect_immutable(const std::filesystem::path& path);

}  // namespace attune
