#pragma once

#include <filesystem>
#include <string>
#include <type_traits>

#include "generator/error.h"
#include "tuner/database/database_file.h"
#include "tuner/database/sqlite.h"

namespace attune {

/// Error(database) that names the file.
Error database_error(const std::filesystem::path& path, const std::string& cause);

/// The path of a file that is there. Throws Error(database) that says what to do otherwise.
const std::filesystem::path& existing_database(const std::filesystem::path& path);
/// The same of one that can be read as a tuning database.
const std::filesystem::path& readable_database(const std::filesystem::path& path);

/// A database that is there and can be changed, for maintenance. A damaged one is refused: what care is there to take
/// of a fresh one? Throws Error(database) that names the file.
class WritableDatabase {
 public:
  explicit WritableDatabase(const std::filesystem::path& path);

  /// What `change` gives, which takes the connection and may be called several times.
  template <typename Change>
  auto change(Change change) {
    try {
      std::invoke_result_t<Change, sqlite::Connection&> result;
      file_.change([&](sqlite::Connection& db) { result = change(db); });
      return result;
    } catch (const sqlite::Failure& failure) {
      throw database_error(file_.path(), file_.explain(failure));
    }
  }

 private:
  DatabaseFile file_;
};

}  // namespace attune
