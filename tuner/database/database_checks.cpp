#include "tuner/database/database_checks.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <system_error>

#include "tuner/database/file_state.h"
#include "tuner/database/file_system.h"
#include "tuner/database/reading_connection.h"

namespace attune {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;

bool is_corruption(const Failure& failure) {
  return failure.primary() == SQLITE_NOTADB || failure.primary() == SQLITE_CORRUPT;
}

std::string newer_sentence(const fs::path& path, const SchemaFacts& facts) {
  return fmt::format(
      "{} was written by a newer Attune (schema {}, this program knows {}); it is read, results are not "
      "stored in it",
      path.string(), facts.version, schema_version());
}

namespace {

// The first thing that one of SQLite's checks finds, as a Failure.
void require_ok(Connection& connection, const char* check) {
  const std::string verdict = connection.text(check);
  if (verdict == "ok") return;
  // A page that could not be read is told in the same way as one that is damaged.
  constexpr std::string_view kCode = "error code=";
  if (const std::size_t at = verdict.find(kCode); at != std::string::npos) {
    const int code = std::atoi(verdict.c_str() + at + kCode.size());
    if ((code & 0xff) == SQLITE_IOERR || sqlite::is_out_of_memory(code)) sqlite::fail(code, verdict);
  }
  constexpr std::string_view kHeading = "***\n";  // "*** in database main ***", a line of its own
  const std::size_t heading = verdict.find(kHeading);
  throw Failure{SQLITE_CORRUPT, heading == std::string::npos ? verdict : verdict.substr(heading + kHeading.size())};
}

}  // namespace

void check_integrity(Connection& connection) { require_ok(connection, "PRAGMA quick_check(1)"); }

void check_indices(Connection& connection) { require_ok(connection, "PRAGMA integrity_check(1)"); }

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
  if (failure.code == 0 || failure.code == kNewerSchema) return failure.message;
  if (failure.primary() == SQLITE_BUSY) {
    return fmt::format("another process has kept it locked for {} s; run again when that one has ended",
                       kBusyMilliseconds / 1000);
  }
  // Of 512 bytes, beside which there are names of logs and a 0.
  constexpr std::size_t kLongestPath = 504;
  std::error_code unknown;
  const std::size_t bytes = fs::absolute(path, unknown).string().size();
  if (failure.primary() == SQLITE_CANTOPEN && bytes > kLongestPath)
    return fmt::format("its path has {} bytes, and SQLite takes {}; name a shorter one", bytes, kLongestPath);
  return fmt::format("{} (SQLite code {})", failure.message, failure.code);
}

}  // namespace attune
