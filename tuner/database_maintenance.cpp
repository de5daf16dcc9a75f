#include "tuner/database_maintenance.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "generator/error.h"
#include "tuner/database_file.h"
#include "tuner/database_rows.h"
#include "tuner/database_schema.h"
#include "tuner/file_system.h"
#include "tuner/sqlite.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;
using sqlite::Statement;
using sqlite::Transaction;

Error unusable(const fs::path& path, const std::string& cause) {
  return Error(ErrorCode::database, fmt::format("{}: {}", path.string(), cause));
}

const fs::path& required(const fs::path& path) {
  std::error_code ignored;
  if (path.empty())
    throw Error(ErrorCode::database, "no database is named, and HOME is not set: name one with --database");
  if (!fs::is_regular_file(path, ignored)) throw unusable(path, "there is no such database");
  return path;
}

// An open file that can be written.
class WritableDatabase {
 public:
  explicit WritableDatabase(const fs::path& path) : file_(required(path)) {
    if (file_.read_only()) throw unusable(path, "it cannot be changed: " + file_.read_only_because());
  }

  template <typename Change>
  auto change(Change change) {
    try {
      return change(file_.connection());
    } catch (const Failure& failure) {
      throw unusable(file_.path(), file_.explain(failure));
    }
  }

 private:
  DatabaseFile file_;
};

std::int64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

std::map<std::string, std::int64_t> count_by(Connection& db, const char* sql) {
  std::map<std::string, std::int64_t> counts;
  Statement query(db, sql);
  while (query.step()) counts.emplace(query.text(0), query.integer(1));
  return counts;
}

// Rows that a rule names and that do not stand for their config, as a table `doomed` of their ids.
constexpr const char* kDoomed = R"sql(
CREATE TEMP TABLE doomed AS
WITH placed AS (
  SELECT id, status, created_at,
    row_number() OVER (PARTITION BY problem_id, device_id, config ORDER BY created_at DESC, id DESC) AS age,
    row_number() OVER (PARTITION BY problem_id, device_id, config
                       ORDER BY rigor DESC, created_at DESC, id DESC) AS standing,
    count(*) FILTER (WHERE status = 'ok') OVER (PARTITION BY problem_id, device_id, config) AS ok
  FROM main.measurement
)
SELECT id FROM placed
WHERE (age > ?1 AND standing > 1)
   OR (status <> 'ok' AND julianday(created_at) < julianday('now') - ?2 AND (standing > 1 OR ok = 0))
)sql";

constexpr const char* kRemoveDoomed = R"sql(
DELETE FROM measurement WHERE id IN (SELECT id FROM temp.doomed);
DELETE FROM problem    WHERE id NOT IN (SELECT problem_id    FROM measurement);
DELETE FROM device     WHERE id NOT IN (SELECT device_id     FROM measurement);
DELETE FROM provenance WHERE id NOT IN (SELECT provenance_id FROM measurement);
)sql";

}  // namespace

DatabaseContents read_database(const fs::path& path) {
  required(path);
  try {
    const auto db = connect_for_reading(path);
    if (db->integer("PRAGMA application_id") != kApplicationId) throw unusable(path, "it is not a tuning database");
    read_as_newest(*db);
    DatabaseContents contents;
    Statement query(*db, fmt::format("SELECT {}, m.content_hash FROM {} {}", kRowColumns, kRowTables, kRowOrder));
    while (query.step()) {
      if (stored_content_hash(query) != query.text(kRowColumnCount)) {
        ++contents.changed;
      } else if (auto row = read_row(query)) {
        contents.rows.push_back(std::move(*row));
      } else {
        ++contents.unreadable;
      }
    }
    return contents;
  } catch (const Failure& failure) {
    throw unusable(path, fmt::format("it cannot be read: {}; `attune db doctor --database {}` says what is wrong",
                                     failure.message, path.string()));
  }
}

DatabaseInfo describe_database(const fs::path& path) {
  DatabaseFile file(required(path));
  try {
    Connection& db = file.connection();
    DatabaseInfo info;
    info.path = path;
    info.read_only = file.read_only();
    info.notes = file.notes();
    info.schema = static_cast<int>(db.integer("PRAGMA user_version"));
    info.known_schema = schema_version();
    info.rows = db.integer("SELECT count(*) FROM measurement");
    info.problems = db.integer("SELECT count(*) FROM problem");
    info.devices = db.integer("SELECT count(*) FROM device");
    info.rows_by_status = count_by(db, "SELECT status, count(*) FROM measurement GROUP BY status");
    for (const auto& [number, count] : count_by(db, "SELECT rigor, count(*) FROM measurement GROUP BY rigor")) {
      const int rigor = std::atoi(number.c_str());
      const bool known = rigor >= 0 && rigor <= static_cast<int>(Rigor::exhaustive);
      info.rows_by_rigor.emplace(known ? std::string(to_string(static_cast<Rigor>(rigor))) : "rigor " + number, count);
    }
    info.oldest = db.text("SELECT min(created_at) FROM measurement");
    info.newest = db.text("SELECT max(created_at) FROM measurement");
    info.file_bytes = size_of(path);
    info.log_bytes = size_of(path.string() + "-wal");
    info.reclaimable_bytes = db.integer("PRAGMA freelist_count") * db.integer("PRAGMA page_size");
    info.journal_mode = db.text("PRAGMA journal_mode");
    const FileSystem file_system = file_system_of(folder_of(path));
    info.file_system = file_system.name;
    info.network_file_system = file_system.network;
    return info;
  } catch (const Failure& failure) {
    throw unusable(path, file.explain(failure));
  }
}

PruneResult prune_database(const fs::path& path, const PruneRules& rules, bool dry_run) {
  if (!rules.keep_latest && !rules.failed_older_than)
    throw Error(ErrorCode::invalid_argument,
                "nothing says what to remove: give --keep-latest N or --failed-older-than DAYS");
  if (rules.keep_latest && *rules.keep_latest < 1)
    throw Error(ErrorCode::invalid_argument, "--keep-latest must be at least 1");
  if (rules.failed_older_than && *rules.failed_older_than < 0)
    throw Error(ErrorCode::invalid_argument, "--failed-older-than must be at least 0 days");
  return WritableDatabase(path).change([&](Connection& db) {
    Transaction transaction(db);
    // A rule that is not given is NULL, and a comparison with NULL holds for no row.
    Statement doomed(db, kDoomed);
    rules.keep_latest ? doomed.bind(*rules.keep_latest) : doomed.bind(std::nan(""));
    rules.failed_older_than ? doomed.bind(*rules.failed_older_than) : doomed.bind(std::nan(""));
    doomed.step();
    PruneResult result;
    {
      Statement query(db, fmt::format("SELECT p.text, d.name, m.config, m.status, m.created_at, d.sm_count FROM {} "
                                      "WHERE m.id IN (SELECT id FROM temp.doomed) {}",
                                      kRowTables, kRowOrder));
      while (query.step()) {
        result.removed.push_back({query.text(0), query.text(1), query.text(2), query.text(3), query.text(4),
                                  static_cast<int>(query.integer(5))});
      }
    }
    if (!dry_run) db.execute(kRemoveDoomed);
    result.kept = db.integer("SELECT count(*) FROM measurement") -
                  (dry_run ? static_cast<std::int64_t>(result.removed.size()) : 0);
    if (!dry_run) transaction.commit();
    return result;
  });
}

VacuumResult vacuum_database(const fs::path& path) {
  return WritableDatabase(path).change([&](Connection& db) {
    const auto bytes = [&] { return size_of(path) + size_of(path.string() + "-wal"); };
    VacuumResult result;
    result.bytes_before = bytes();
    db.execute("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    result.bytes_after = bytes();
    return result;
  });
}

}  // namespace attune
