#include "tuner/database/database_maintenance.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <tuple>
#include <type_traits>

#include "generator/error.h"
#include "tuner/database/database_checks.h"
#include "tuner/database/database_file.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/database_schema.h"
#include "tuner/database/file_system.h"
#include "tuner/database/reading_connection.h"
#include "tuner/database/sqlite.h"

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
  if (!fs::exists(path, ignored)) throw unusable(path, "there is no such database");
  return path;
}

const fs::path& readable(const fs::path& path) {
  const DatabaseFile file(required(path), DatabaseFile::Use::read);
  if (!file.unreadable_because().empty()) throw Error(ErrorCode::database, file.unreadable_because());
  return path;
}

// An open file that can be written. A damaged one is refused: what care is there to take of a fresh one?
class WritableDatabase {
 public:
  explicit WritableDatabase(const fs::path& path) : file_(readable(path), DatabaseFile::Use::write) {
    if (file_.read_only()) throw unusable(path, "it cannot be changed: " + file_.read_only_because());
  }

  template <typename Change>
  auto change(Change change) {
    try {
      std::invoke_result_t<Change, Connection&> result;
      file_.change([&](Connection& db) { result = change(db); });
      return result;
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
    row_number() OVER (PARTITION BY problem_id, device_id, config
                       ORDER BY sequence DESC, created_at DESC, content_hash DESC) AS age,
    row_number() OVER (PARTITION BY problem_id, device_id, config
                       ORDER BY rigor DESC, sequence DESC, created_at DESC, content_hash DESC) AS standing,
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

// Takes the row that a query of kRowColumns and the content hash stands at.
void take_row(const Statement& query, DatabaseContents& contents) {
  if (stored_content_hash(query) != query.text(kRowColumnCount)) {
    ++contents.changed;
  } else if (auto row = read_row(query)) {
    contents.rows.push_back(std::move(*row));
  } else {
    ++contents.unreadable;
  }
}

void read_rows(Connection& db, DatabaseContents& contents) {
  Statement query(db, fmt::format("SELECT {}, m.content_hash FROM {} {}", kRowColumns, kRowTables, kRowOrder));
  while (query.step()) take_row(query, contents);
}

DatabaseContents read_sound(const fs::path& path, Connection& db) {
  DatabaseContents contents;
  const SchemaFacts facts = usable_schema(path, db);
  check_integrity(db);
  read_as_newest(db, facts.version);
  if (!facts.empty) read_rows(db, contents);
  return contents;
}

// Reads around damaged pages: tables and indices from both ends, and each row by itself.
class Salvage {
 public:
  Salvage(Connection& db, DatabaseContents& contents) : db_(db), contents_(contents) {}

  void read() {
    // What rows refer to is in an index, too. Tables of these names hide the damaged ones.
    db_.execute("PRAGMA temp_store = MEMORY");
    gather("problem", "id INTEGER PRIMARY KEY, text TEXT", "id, text");
    gather("device", "id INTEGER PRIMARY KEY, name TEXT, sm_count INTEGER", "id, name, sm_count");
    gather(
        "provenance",
        "id INTEGER PRIMARY KEY, templates_hash TEXT, compiler TEXT, driver TEXT, protocol TEXT, attune_version TEXT",
        "id, templates_hash, compiler, driver, protocol, attune_version");
    find_rows();
    Statement query(db_, fmt::format("SELECT {}, m.content_hash FROM {} WHERE m.id = ?", kRowColumns, kRowTables));
    for (const std::int64_t id : ids_) {
      query.bind(id);
      const auto found = attempt([&] {
        if (!query.step()) return false;
        take_row(query, contents_);
        return true;
      });
      if (!found || (!*found && known_.contains(id))) ++contents_.lost;
      query.reset();
    }
    const auto order = [](const Measurement& row) {
      return std::tuple(canonical_text(row.problem), row.device, row.sm_count, canonical_text(row.config),
                        row.created_at, content_hash(row));
    };
    std::sort(contents_.rows.begin(), contents_.rows.end(),
              [&](const Measurement& a, const Measurement& b) { return order(a) < order(b); });
  }

 private:
  // What reading gives; none where the page is damaged.
  template <typename Reading>
  static std::optional<bool> attempt(Reading reading) {
    try {
      return reading();
    } catch (const Failure& failure) {
      const int code = failure.primary();
      if (code != SQLITE_CORRUPT && code != SQLITE_IOERR && code != SQLITE_ERROR) throw;
      return std::nullopt;
    }
  }

  void gather(const std::string& table, const char* declarations, const char* columns) {
    db_.execute(fmt::format("CREATE TEMP TABLE {} ({})", table, declarations).c_str());
    const int count = static_cast<int>(std::count(columns, columns + std::strlen(columns), ',')) + 1;
    std::string parameters = "?";
    for (int i = 1; i < count; ++i) parameters += ", ?";
    for (const std::string& source : ways_to_read(table, {fmt::format("sqlite_autoindex_{}_1", table)})) {
      attempt([&] {
        Statement query(db_, fmt::format("SELECT {} FROM {}", columns, source));
        while (query.step()) {
          Statement insert(db_, fmt::format("INSERT OR IGNORE INTO temp.{} VALUES ({})", table, parameters));
          for (int column = 0; column < count; ++column) insert.bind_column(query, column);
          insert.step();
        }
        return true;
      });
    }
  }

  // Forwards and backwards, by the table and by each index.
  static std::vector<std::string> ways_to_read(const std::string& table, const std::vector<std::string>& indices) {
    std::vector<std::string> ways;
    for (const char* direction : {"", " DESC"}) {
      ways.push_back(fmt::format("main.{} NOT INDEXED ORDER BY rowid{}", table, direction));
      for (const std::string& index : indices)
        ways.push_back(fmt::format("main.{} INDEXED BY {}", table, index) +
                       (*direction != 0 ? fmt::format(" ORDER BY {} DESC", first_column(index)) : ""));
    }
    return ways;
  }

  static const char* first_column(const std::string& index) {
    if (index == "sqlite_autoindex_problem_1") return "text";
    if (index == "sqlite_autoindex_device_1") return "name";
    if (index == "sqlite_autoindex_provenance_1") return "templates_hash";
    return index == "sqlite_autoindex_measurement_1" ? "content_hash" : "problem_id";
  }

  void find_rows() {
    bool complete = false;
    for (const std::string& source :
         ways_to_read("measurement", {"sqlite_autoindex_measurement_1", "measurement_by_question"})) {
      const auto ended = attempt([&] {
        Statement query(db_, "SELECT rowid FROM " + source);
        while (query.step()) known_.insert(query.integer(0));
        return true;
      });
      complete = complete || ended.has_value();
    }
    ids_ = known_;
    constexpr std::int64_t kMostTried = 1'000'000;
    if (complete || known_.empty() || *known_.rbegin() - *known_.begin() > kMostTried) return;
    for (std::int64_t id = *known_.begin(); id <= *known_.rbegin(); ++id) ids_.insert(id);
  }

  Connection& db_;
  DatabaseContents& contents_;
  std::set<std::int64_t> known_;  // rows of which something says that they are there
  std::set<std::int64_t> ids_;    // rows to try
};

DatabaseContents salvage(const fs::path& path, Connection& db) {
  DatabaseContents contents;
  const SchemaFacts facts = inspect_schema(db);
  if (!facts.is_attunes() || (!facts.empty && !facts.readable_as)) usable_schema(path, db);
  if (facts.empty) return contents;
  if (!facts.differences.empty()) contents.damage = describe(facts.differences.front(), facts);
  read_as_newest(db, facts.readable_as.value_or(schema_version()));
  try {
    check_integrity(db);
    read_rows(db, contents);
  } catch (const Failure& failure) {
    contents = DatabaseContents();
    contents.damage = failure.message;
    Salvage(db, contents).read();
  }
  return contents;
}

}  // namespace

DatabaseContents read_database(const fs::path& path, Damage damage) {
  required(path);
  DatabaseContents contents;
  try {
    ask_file(path, [&](ReadingConnection& reading) {
      Connection& db = reading.connection();
      contents = damage == Damage::salvage ? salvage(path, db) : read_sound(path, db);
    });
    return contents;
  } catch (const Failure& failure) {
    throw unusable(path, failure.code == 0 ? failure.message
                                           : fmt::format("it cannot be read: {}; `attune db doctor --database {}` says "
                                                         "what is wrong",
                                                         failure.message, shell_word(path.string())));
  }
}

DatabaseInfo describe_database(const fs::path& path) {
  DatabaseFile file(readable(path), DatabaseFile::Use::read);
  try {
    DatabaseInfo info;
    file.ask([&](Connection& db) {
      info = DatabaseInfo();
      info.schema = static_cast<int>(db.integer("PRAGMA user_version"));
      info.rows = db.integer("SELECT count(*) FROM measurement");
      info.problems = db.integer("SELECT count(*) FROM problem");
      info.devices = db.integer("SELECT count(*) FROM device");
      info.rows_by_status = count_by(db, "SELECT status, count(*) FROM measurement GROUP BY status");
      for (const auto& [number, count] : count_by(db, "SELECT rigor, count(*) FROM measurement GROUP BY rigor")) {
        const int rigor = std::atoi(number.c_str());
        const bool known = rigor >= 0 && rigor <= static_cast<int>(Rigor::exhaustive);
        info.rows_by_rigor.emplace(known ? std::string(to_string(static_cast<Rigor>(rigor))) : "rigor " + number,
                                   count);
      }
      info.oldest = db.text("SELECT min(created_at) FROM measurement");
      info.newest = db.text("SELECT max(created_at) FROM measurement");
      info.reclaimable_bytes = db.integer("PRAGMA freelist_count") * db.integer("PRAGMA page_size");
      info.journal_mode = db.text("PRAGMA journal_mode");
    });
    if (ReadingConnection(path).uses_write_ahead_log()) info.journal_mode = "wal";
    info.path = path;
    info.known_schema = schema_version();
    info.notes = file.notes();
    const std::string reason = not_writable_because(path);
    if (!reason.empty()) info.notes.push_back(reason);
    info.read_only = !reason.empty() || info.schema > info.known_schema;
    info.file_bytes = size_of(path);
    info.log_bytes = size_of(path.string() + "-wal");
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
