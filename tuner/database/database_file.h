#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/system/state_mutex.h"
#include "tuner/database/database_label.h"
#include "tuner/database/reading_connection.h"
#include "tuner/database/sqlite.h"

namespace attune {

/// The file of a tuning database, opened as TuningDatabase promises: always to something that answers, with a sentence
/// in notes() for whatever was found amiss. Thread-safe. No connection crosses a fork: all are closed before it, and
/// opened again by the next question, in the parent and in the child. Throws std::bad_alloc where memory runs out; the
/// next question finds everything as it was.
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
  /// Asks for something. The question may be put several times, and is part of a section of the ForkGate: it calls no
  /// code of the caller's and logs nothing. Throws sqlite::Failure.
  void ask(const Question& question);
  /// Changes something, once; only where read_only() is false. Throws sqlite::Failure.
  void change(const Question& action);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool read_only() const { return !read_only_because_.empty(); }
  const std::string& read_only_because() const { return read_only_because_; }
  /// Why it stands as an empty database although its file is there or should be; empty if that is read.
  const std::string& unreadable_because() const { return unreadable_because_; }
  /// Of a shipped one; else empty.
  const DatabaseLabel& label() const { return label_; }

  /// What to tell a person about a failed query or write.
  std::string explain(const sqlite::Failure& failure) const;

  /// For LiveFiles: closes the connections. Nobody may ask meanwhile.
  void close();

 private:
  void open();
  void close_and_forget();
  void begin_reading(const std::string& read_only_because);
  void begin_writing();
  bool try_to_write(bool locked);
  std::string not_ours_because();
  void connect_to_shipped();
  void connect_for_reading();
  void connect_for_writing();
  void read_instead(const std::string& note);
  void stand_empty(const std::string& note);
  void replace_corrupt_file(const std::string& cause);
  void ask_locked(const Question& question);
  sqlite::Connection& current();
  void drop_if_moved();

  const std::filesystem::path path_;
  const Use use_;
  const std::string_view image_;
  // Settled by the constructor.
  std::vector<std::string> notes_;
  std::string read_only_because_, unreadable_because_;
  DatabaseLabel label_;
  bool writes_ = false;

  StateMutex mutex_;      // guards what follows
  bool checked_ = false;  // its pages and indices were looked at once
  ReadingConnection::Manner manner_ = ReadingConnection::Manner::in_place;
  std::unique_ptr<sqlite::Connection> writing_;  // or to the shipped file
  std::unique_ptr<ReadingConnection> reading_;
  bool begun_ = false;                         // what was looked at last has tables
  std::unique_ptr<sqlite::Connection> empty_;  // in memory
};

}  // namespace attune
