#include "tuner/database/journal_mode.h"

#include <sqlite3.h>

#include "tuner/database/file_system.h"
#include "tuner/database/reading_connection.h"

namespace attune {

void choose_journal(const std::filesystem::path& path, sqlite::Connection& connection) {
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
    } catch (const sqlite::Failure& failure) {
      if (failure.primary() != SQLITE_BUSY || attempt == kPatience) throw;
      sqlite3_sleep(10);
    }
  }
}

}  // namespace attune
