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
#include "tuner/database/writable_database.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using sqlite::Connection;
using sqlite::Failure;
using sqlite::Statement;
using sqlite::Transaction;

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

// Takes the row that a query of kRowColumns and the content hash stands at.
void take_row(const Statement& query, DatabaseContents& contents) {
  if (stored_content_hash(query) != query.text(kRowColumnCount)) {
    ++contents.changed;
  } else if (auto row = read_row(query)) {
    const bool is_timed = canonical_time(row->created_at) && (row->race.empty() || canonical_time(row->race));
    if (is_timed) {
      contents.rows.push_back(std::move(*row));
    } else {
      ++contents.untimed;
    }
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
  check_indices(db);
  read_as_newest(db, facts.version);
  if (!facts.empty) read_rows(db, contents);
  return contents;
}

// Reads around damaged pages: tables and indices from both ends, and each row by itself.
class Salvage {
 public:
  /// `version`: what the file's tables are read as.
  Salvage(Connection& db, int version, DatabaseContents& contents) : db_(db), version_(version), contents_(contents) {}

  void read() {
    // What rows refer to is in an index, too. Tables of these names hide the damaged ones.
    db_.execute("PRAGMA temp_store = MEMORY");
    gather("problem", "id INTEGER PRIMARY KEY, text TEXT", "id, text");
    gather("device", "id INTEGER PRIMARY KEY, name TEXT, sm_count INTEGER", "id, name, sm_count");
    const std::string texts = "compiler TEXT, driver TEXT, protocol TEXT, attune_version TEXT";
    if (knows_templates()) {
      gather("provenance", "id INTEGER PRIMARY KEY, templates_hash TEXT, " + texts,
             "id, templates_hash, compiler, driver, protocol, attune_version");
    } else {
      gather("provenance", "id INTEGER PRIMARY KEY, " + texts, "id, compiler, driver, protocol, attune_version");
    }
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

  // Version 4 moved the hash to the measurement.
  bool knows_templates() const { return version_ < 4; }

  void gather(const std::string& table, const std::string& declarations, const char* columns) {
    // In place of the view by which an older schema is read.
    db_.execute(
        fmt::format("DROP VIEW IF EXISTS temp.{}; CREATE TEMP TABLE {} ({})", table, table, declarations).c_str());
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
  std::vector<std::string> ways_to_read(const std::string& table, const std::vector<std::string>& indices) const {
    std::vector<std::string> ways;
    for (const char* direction : {"", " DESC"}) {
      ways.push_back(fmt::format("main.{} NOT INDEXED ORDER BY rowid{}", table, direction));
      for (const std::string& index : indices)
        ways.push_back(fmt::format("main.{} INDEXED BY {}", table, index) +
                       (*direction != 0 ? fmt::format(" ORDER BY {} DESC", first_column(index)) : ""));
    }
    return ways;
  }

  const char* first_column(const std::string& index) const {
    if (index == "sqlite_autoindex_problem_1") return "text";
    if (index == "sqlite_autoindex_device_1") return "name";
    if (index == "sqlite_autoindex_provenance_1") return knows_templates() ? "templates_hash" : "compiler";
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
  const int version_;
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
  const int version = facts.readable_as.value_or(schema_version());
  read_as_newest(db, version);
  try {
    check_integrity(db);
    if (facts.differences.empty()) check_indices(db);
    read_rows(db, contents);
  } catch (const Failure& failure) {
    contents = DatabaseContents();
    contents.damage = failure.message;
    Salvage(db, version, contents).read();
  }
  return contents;
}

}  // namespace

DatabaseContents read_database(const fs::path& path, Damage damage) {
  existing_database(path);
  DatabaseContents contents;
  try {
    ask_file(path, [&](ReadingConnection& reading) {
      Connection& db = reading.connection();
      contents = damage == Damage::salvage ? salvage(path, db) : read_sound(path, db);
    });
    return contents;
  } catch (const Failure& failure) {
    throw database_error(path, failure.code == 0
                                   ? failure.message
                                   : fmt::format("it cannot be read: {}; `attune db doctor --database {}` says "
                                                 "what is wrong",
                                                 failure.message, shell_word(path.string())));
  }
}

DatabaseInfo describe_database(const fs::path& path) {
  DatabaseFile file(readable_database(path), DatabaseFile::Use::read);
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
      info.oldest = db.text("SELECT min(time_order(created_at)) FROM measurement");
      info.newest = db.text("SELECT max(time_order(created_at)) FROM measurement");
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
    throw database_error(path, file.explain(failure));
  }
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
