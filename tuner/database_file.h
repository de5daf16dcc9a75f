#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/sqlite.h"

namespace attune {

/// The file of a tuning database, opened as TuningDatabase promises: always to something that answers, with a sentence
/// in notes() for whatever was found amiss. Not thread-safe.
class DatabaseFile {
 public:
  enum class Use {
    own,      ///< of this user: created, migrated, written
    shipped,  ///< a system's: opened immutable, so that not even a lock is taken
  };
  /// `image`: the bytes of a shipped database that is part of the program and outlives this; the path is its name then.
  explicit DatabaseFile(std::filesystem::path path, Use use = Use::own, std::string_view image = {});
  DatabaseFile(const DatabaseFile&) = delete;
  DatabaseFile& operator=(const DatabaseFile&) = delete;

  /// No connection crosses a fork: the child opens its own. Throws sqlite::Failure.
  sqlite::Connection& connection();

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool read_only() const { return read_only_; }
  const std::string& read_only_because() const { return read_only_because_; }

  /// What to tell a person about a failed query or write.
  std::string explain(const sqlite::Failure& failure) const;

 private:
  void open();
  void open_file();
  void open_shipped();
  /// Throws Failure for a corrupt file. False if this program must not write to it; then something else has been
  /// opened.
  bool inspect();
  void choose_journal();
  void open_read_only(const std::string& note);
  void stand_empty(const std::string& note);
  void be_read_only(const std::string& note);
  void replace_corrupt_file(const std::string& cause);
  std::filesystem::path keep_aside(std::error_code& error) const;

  const std::filesystem::path path_;
  const Use use_;
  const std::string_view image_;
  std::vector<std::string> notes_;
  bool read_only_ = false;
  std::string read_only_because_;
  std::unique_ptr<sqlite::Connection> connection_;
  pid_t owner_;
};

/// A connection that changes nothing, from a read-only folder too. Throws sqlite::Failure.
std::unique_ptr<sqlite::Connection> connect_for_reading(const std::filesystem::path& path);

}  // namespace attune
