#include "tuner/database/writable_database.h"

#include <fmt/format.h>

#include <system_error>

namespace attune {

namespace fs = std::filesystem;

Error database_error(const fs::path& path, const std::string& cause) {
  return Error(ErrorCode::database, fmt::format("{}: {}", path.string(), cause));
}

const fs::path& existing_database(const fs::path& path) {
  std::error_code ignored;
  if (path.empty())
    throw Error(ErrorCode::database, "no database is named, and HOME is not set: name one with --database");
  if (!fs::exists(path, ignored)) throw database_error(path, "there is no such database");
  return path;
}

const fs::path& readable_database(const fs::path& path) {
  const DatabaseFile file(existing_database(path), DatabaseFile::Use::read);
  if (!file.unreadable_because().empty()) throw Error(ErrorCode::database, file.unreadable_because());
  return path;
}

WritableDatabase::WritableDatabase(const fs::path& path) : file_(readable_database(path), DatabaseFile::Use::write) {
  if (file_.read_only()) throw database_error(path, "it cannot be changed: " + file_.read_only_because());
}

}  // namespace attune
