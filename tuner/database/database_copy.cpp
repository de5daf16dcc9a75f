#include "tuner/database/database_copy.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>

#include "runtime/system/scratch_folder.h"
#include "tuner/database/file_state.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;

constexpr int kMostAttempts = 20;  // to copy a file that others write to

// Where a private copy may be made; those of killed processes go away first.
ScratchFolder folder_below(const fs::path& parent) {
  try {
    return {parent, "attune-read-"};
  } catch (const fs::filesystem_error& error) {
    throw Failure{SQLITE_CANTOPEN,
                  fmt::format("it cannot be copied into {} ({})", parent.string(), error.code().message())};
  }
}

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

}  // namespace

std::unique_ptr<Connection> connect_to_copy(const fs::path& path, const fs::path& parent) {
  const ScratchFolder folder = folder_below(parent);
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

}  // namespace attune
