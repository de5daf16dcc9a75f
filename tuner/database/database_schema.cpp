#include "tuner/database/database_schema.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "generator/lazy_value.h"
#include "runtime/system/printable.h"
#include "tuner/database/database_rows.h"
#include "tuner/database/measurement.h"
#include "tuner/database/schema_objects.h"

namespace attune {
namespace {

// The schema of version i + 1 from that of version i. A migration that has shipped never changes.
constexpr std::array<const char*, 8> kMigrations = {R"sql(
CREATE TABLE problem (
  id          INTEGER PRIMARY KEY,
  text        TEXT    NOT NULL UNIQUE,  -- canonical; the other columns repeat it for queries
  pass        TEXT    NOT NULL,
  dtype       TEXT    NOT NULL,
  batch       INTEGER NOT NULL,
  heads_q     INTEGER NOT NULL,
  heads_kv    INTEGER NOT NULL,
  seq_q       INTEGER NOT NULL,
  seq_kv      INTEGER NOT NULL,
  head_dim    INTEGER NOT NULL,
  mask        TEXT    NOT NULL,         -- none, causal
  mask_offset INTEGER NOT NULL,
  scale       REAL    NOT NULL,
  layout      TEXT    NOT NULL,
  alignment   INTEGER NOT NULL
) STRICT;

CREATE TABLE device (
  id       INTEGER PRIMARY KEY,
  name     TEXT    NOT NULL,            -- the driver's name of the model
  sm_count INTEGER NOT NULL,
  UNIQUE (name, sm_count)
) STRICT;

CREATE TABLE provenance (
  id             INTEGER PRIMARY KEY,
  templates_hash TEXT NOT NULL,
  compiler       TEXT NOT NULL,
  driver         TEXT NOT NULL,
  protocol       TEXT NOT NULL,         -- how it was measured
  attune_version TEXT NOT NULL,
  UNIQUE (templates_hash, compiler, driver, protocol, attune_version)
) STRICT;

CREATE TABLE measurement (
  id            INTEGER PRIMARY KEY,    -- rises with the order of appending
  content_hash  TEXT    NOT NULL UNIQUE,
  problem_id    INTEGER NOT NULL REFERENCES problem (id),
  device_id     INTEGER NOT NULL REFERENCES device (id),
  provenance_id INTEGER NOT NULL REFERENCES provenance (id),
  config        TEXT    NOT NULL,       -- canonical
  status        TEXT    NOT NULL,
  reason        TEXT    NOT NULL,
  rigor         INTEGER NOT NULL,       -- 0 estimate, 1 measure, 2 patient, 3 exhaustive
  samples_us    BLOB    NOT NULL,       -- doubles, little endian
  clocks_mhz    BLOB    NOT NULL,       -- 32-bit integers, little endian
  median_us     REAL    NOT NULL,
  p20_us        REAL    NOT NULL,
  p80_us        REAL    NOT NULL,
  predicted_us  REAL    NOT NULL,
  sm_clock_mhz  INTEGER NOT NULL,
  error_o       REAL,                   -- NULL: an output held NaN
  error_lse     REAL,
  registers     INTEGER NOT NULL,
  spill_bytes   INTEGER NOT NULL,
  shared_bytes  INTEGER NOT NULL,
  compile_ms    REAL    NOT NULL,
  created_at    TEXT    NOT NULL        -- UTC, ISO 8601
) STRICT;

CREATE INDEX measurement_by_question ON measurement (problem_id, device_id, config, rigor, id);
)sql",
                                                    R"sql(
ALTER TABLE measurement ADD COLUMN race TEXT NOT NULL DEFAULT '';      -- UTC, when it began; '': not raced
ALTER TABLE measurement ADD COLUMN place INTEGER NOT NULL DEFAULT 0;   -- in the race, from 1; 0: not raced

CREATE INDEX problem_by_class ON problem (pass, dtype, head_dim, mask, alignment);
)sql",
                                                    R"sql(
ALTER TABLE measurement ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0; -- what is newer has a greater one; 0: unknown

CREATE INDEX measurement_by_sequence ON measurement (sequence);
)sql",
                                                    R"sql(
ALTER TABLE measurement RENAME TO old_measurement;
ALTER TABLE provenance RENAME TO old_provenance;

CREATE TABLE provenance (
  id             INTEGER PRIMARY KEY,
  compiler       TEXT NOT NULL,
  driver         TEXT NOT NULL,
  protocol       TEXT NOT NULL,         -- how it was measured
  attune_version TEXT NOT NULL,
  UNIQUE (compiler, driver, protocol, attune_version)
) STRICT;

CREATE TABLE measurement (
  id            INTEGER PRIMARY KEY,    -- rises with the order of appending
  content_hash  TEXT    NOT NULL UNIQUE,
  problem_id    INTEGER NOT NULL REFERENCES problem (id),
  device_id     INTEGER NOT NULL REFERENCES device (id),
  provenance_id INTEGER NOT NULL REFERENCES provenance (id),
  config        TEXT    NOT NULL,       -- canonical
  source_hash   TEXT    NOT NULL,       -- of the plan's kernels; "templates:<hash>": what version 0.1 knew in its place
  status        TEXT    NOT NULL,
  reason        TEXT    NOT NULL,
  rigor         INTEGER NOT NULL,       -- 0 estimate, 1 measure, 2 patient, 3 exhaustive
  samples_us    BLOB    NOT NULL,       -- doubles, little endian
  clocks_mhz    BLOB    NOT NULL,       -- 32-bit integers, little endian
  median_us     REAL    NOT NULL,
  p20_us        REAL    NOT NULL,
  p80_us        REAL    NOT NULL,
  predicted_us  REAL    NOT NULL,
  sm_clock_mhz  INTEGER NOT NULL,
  error_o       REAL,                   -- NULL: an output held NaN
  error_lse     REAL,
  registers     INTEGER NOT NULL,
  spill_bytes   INTEGER NOT NULL,
  shared_bytes  INTEGER NOT NULL,
  compile_ms    REAL    NOT NULL,
  created_at    TEXT    NOT NULL,       -- UTC, ISO 8601
  race          TEXT    NOT NULL,       -- UTC, when it began; '': not raced
  place         INTEGER NOT NULL,       -- in the race, from 1; 0: not raced
  sequence      INTEGER NOT NULL        -- what is newer has a greater one; 0: unknown
) STRICT;

INSERT INTO provenance SELECT min(id), compiler, driver, protocol, attune_version FROM old_provenance
  GROUP BY compiler, driver, protocol, attune_version;
INSERT INTO measurement
  SELECT m.id, m.content_hash, p.id, d.id, v.id, m.config, 'templates:' || o.templates_hash, m.status, m.reason, m.rigor,
         m.samples_us, m.clocks_mhz, m.median_us, m.p20_us, m.p80_us, m.predicted_us, m.sm_clock_mhz, m.error_o,
         m.error_lse, m.registers, m.spill_bytes, m.shared_bytes, m.compile_ms, m.created_at, m.race, m.place, m.sequence
  FROM old_measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id
  JOIN old_provenance o ON o.id = m.provenance_id
  JOIN provenance v ON (v.compiler, v.driver, v.protocol, v.attune_version) =
                       (o.compiler, o.driver, o.protocol, o.attune_version)
  ORDER BY m.id;

DROP TABLE old_measurement;
DROP TABLE old_provenance;
CREATE INDEX measurement_by_question ON measurement (problem_id, device_id, config, rigor, id);
CREATE INDEX measurement_by_sequence ON measurement (sequence);
)sql",
                                                    R"sql(
ALTER TABLE measurement ADD COLUMN wide_samples_us BLOB NOT NULL DEFAULT x'';  -- with wide scores, as samples_us; x'': none
ALTER TABLE measurement ADD COLUMN wide_median_us REAL NOT NULL DEFAULT 0;     -- of them; 0: none
)sql",
                                                    // Problems and times have one spelling each.
                                                    "",
                                                    R"sql(
ALTER TABLE problem ADD COLUMN features TEXT NOT NULL DEFAULT '';  -- words of the fields that have no column
UPDATE problem SET features = 'deterministic' WHERE text LIKE '% deterministic%';
)sql",
                                                    R"sql(
ALTER TABLE measurement ADD COLUMN host TEXT NOT NULL DEFAULT '';          -- where it was measured; '' and 0: unknown
ALTER TABLE measurement ADD COLUMN gpu_uuid TEXT NOT NULL DEFAULT '';
ALTER TABLE measurement ADD COLUMN driver_build TEXT NOT NULL DEFAULT '';
ALTER TABLE measurement ADD COLUMN power_limit_w INTEGER NOT NULL DEFAULT 0;
ALTER TABLE measurement ADD COLUMN sm_clock_limit_mhz INTEGER NOT NULL DEFAULT 0;
ALTER TABLE measurement ADD COLUMN memory_clock_mhz INTEGER NOT NULL DEFAULT 0;
)sql"};

// The last version whose configs may have words of earlier programs. A connection that cannot migrate reads them as
// they are: those of one file are all alike.
constexpr std::int64_t kVersionOfOldWords = 4;
// The last version whose problems may have a mask that hides nothing, and whose times may have any fraction of a
// second. Whoever reads such a file reads both.
constexpr std::int64_t kVersionOfOldSpellings = 5;
// The first versions with wide times, with all columns of problems, and with all of measurements.
constexpr int kVersionOfWideTimes = 5, kVersionOfFeatures = 7, kVersionOfNodes = 8;

// What a connection that cannot migrate adds to the measurements of version i + 1 in a view that it lays over them, so
// that they are read as those of the newest: a temporary view hides the table of its name. Wide times follow, which all
// of them lack, and nodes. A temporary table of provenance hides the file's here, too.
#define SOURCE_HASH "'templates:' || (SELECT templates_hash FROM provenance WHERE id = provenance_id) AS source_hash"
constexpr std::array<const char*, kVersionOfWideTimes - 1> kReadings = {
    "'' AS race, 0 AS place, 0 AS sequence, " SOURCE_HASH ",", "0 AS sequence, " SOURCE_HASH ",", SOURCE_HASH ",", ""};
#undef SOURCE_HASH

static_assert(std::endian::native == std::endian::little, "the schema stores little-endian numbers");
static_assert(std::is_same_v<decltype(Measurement::clocks_mhz)::value_type, std::int32_t>, "the schema stores 32 bits");

constexpr std::int64_t kMostVersions = 10'000;  // a number beyond it is a damaged header, no later Attune

void take_step(sqlite::Connection& connection, std::int64_t version) {
  if (version == kVersionOfOldWords) respell_configs(connection);
  if (version == kVersionOfOldSpellings) respell_problems_and_times(connection);
  connection.execute(kMigrations.at(static_cast<std::size_t>(version)));
  connection.execute(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, version + 1).c_str());
}

// Names of columns that hold what was put there, in order: no generated ones.
std::vector<std::string> stored_columns(sqlite::Connection& connection, const std::string& table) {
  std::vector<std::string> names;
  sqlite::Statement query(connection, "SELECT name FROM pragma_table_xinfo(?, 'main') WHERE hidden = 0 ORDER BY name");
  query.bind(table);
  while (query.step()) names.push_back(query.text(0));
  return names;
}

// What files hold as this program makes them.
struct Expected {
  std::vector<SchemaObjects> objects = {{}};                // by version, from the empty one of version 0
  std::map<std::string, std::vector<std::string>> columns;  // of the newest version's tables
};

const Expected& expected() {
  static constinit LazyValue<const Expected> made_once;
  return made_once.get([] {
    sqlite::Connection db(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
    Expected made;
    for (int version = 0; version < schema_version(); ++version) {
      take_step(db, version);
      made.objects.push_back(objects_of(db));
    }
    for (const auto& [key, object] : made.objects.back()) {
      if (key.first == "table") made.columns.emplace(key.second, stored_columns(db, key.second));
    }
    return made;
  });
}

bool has_tables_of(const SchemaObjects& expected, const SchemaObjects& present) {
  return std::all_of(expected.begin(), expected.end(), [&](const auto& object) {
    if (object.first.first != "table") return true;
    const auto found = present.find(object.first);
    return found != present.end() && found->second == object.second;
  });
}

// A newer file may hold more; what is read of it must be there, in ordinary tables and columns.
std::vector<SchemaDifference> unreadable_tables(sqlite::Connection& connection, const SchemaObjects& present) {
  std::vector<SchemaDifference> differences;
  for (const auto& [table, needs] : expected().columns) {
    const auto found = present.find({"table", table});
    if (found == present.end()) {
      differences.push_back({SchemaDifference::Kind::missing, "table", table});
      continue;
    }
    const std::vector<std::string> has = stored_columns(connection, table);
    if (!found->second.sql.starts_with("CREATE TABLE ") ||
        !std::includes(has.begin(), has.end(), needs.begin(), needs.end()))
      differences.push_back({SchemaDifference::Kind::changed, "table", table});
  }
  return differences;
}

// A name may hold anything: on one line, and not all of a long one.
std::string shown_name(std::string name) {
  constexpr std::size_t kShown = 60;
  const bool whole = name.size() <= kShown;
  name.resize(std::min(name.size(), kShown));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return printable(name) + (whole ? "" : "...");
}

}  // namespace

int schema_version() { return static_cast<int>(kMigrations.size()); }

void migrate(sqlite::Connection& connection) {
  while (connection.integer("PRAGMA user_version") < schema_version()) {
    sqlite::Transaction transaction(connection);
    // Another process may have been here.
    const std::int64_t version = connection.integer("PRAGMA user_version");
    if (version >= schema_version()) return;
    if (version < 0) throw sqlite::Failure{SQLITE_CORRUPT, fmt::format("its schema number is {}", version)};
    take_step(connection, version);
    transaction.commit();
  }
}

SchemaFacts inspect_schema(sqlite::Connection& connection) {
  SchemaFacts facts;
  // As of one moment: another process may be beginning the file.
  connection.execute("BEGIN");
  const SchemaObjects present = objects_of(connection);
  facts.application = connection.integer("PRAGMA application_id");
  facts.version = connection.integer("PRAGMA user_version");
  connection.execute("COMMIT");
  facts.empty = present.empty();
  if (!facts.is_attunes()) return facts;
  const std::vector<SchemaObjects>& made = expected().objects;
  std::optional<int> fits;
  for (int version = 1; version <= schema_version(); ++version) {
    if (has_tables_of(made[static_cast<std::size_t>(version)], present)) fits = version;
  }
  const std::vector<SchemaDifference> missing = unreadable_tables(connection, present);
  // Two versions may have the same tables.
  const bool known = facts.version >= 1 && facts.version <= schema_version();
  if (known && has_tables_of(made[static_cast<std::size_t>(facts.version)], present))
    fits = static_cast<int>(facts.version);
  facts.readable_as = fits ? fits : missing.empty() ? std::optional(schema_version()) : std::nullopt;
  if (facts.version < 0 || facts.version > kMostVersions || (fits && *fits > facts.version)) {
    facts.differences.push_back({SchemaDifference::Kind::number, "", ""});
    return facts;
  }
  if (facts.is_newer()) {
    facts.differences = missing;
    return facts;
  }
  const SchemaObjects& right = made[static_cast<std::size_t>(facts.version)];
  for (const auto& [key, object] : right) {
    const auto found = present.find(key);
    if (found == present.end()) {
      facts.differences.push_back({SchemaDifference::Kind::missing, key.first, key.second});
    } else if (found->second != object) {
      facts.differences.push_back({SchemaDifference::Kind::changed, key.first, key.second});
    }
  }
  for (const auto& [key, object] : present) {
    if (!right.contains(key)) facts.differences.push_back({SchemaDifference::Kind::foreign, key.first, key.second});
  }
  return facts;
}

std::string describe(const SchemaDifference& difference, const SchemaFacts& facts) {
  const std::string object = fmt::format("{} {}", shown_name(difference.type), shown_name(difference.name));
  switch (difference.kind) {
    case SchemaDifference::Kind::foreign:
      return object + " is not Attune's";
    case SchemaDifference::Kind::missing:
      return object + " is missing";
    case SchemaDifference::Kind::changed:
      return object + " is not what Attune made";
    case SchemaDifference::Kind::number:
      break;
  }
  return fmt::format("its schema number {} is not that of its tables{}", facts.version,
                     facts.readable_as ? fmt::format(", which is {}", *facts.readable_as) : "");
}

void read_as_newest(sqlite::Connection& connection, std::int64_t version) {
  if (version < 1 || version >= kVersionOfNodes) return;
  connection.execute("PRAGMA temp_store = MEMORY");
  std::string lacking = kNoNode;
  if (version < kVersionOfWideTimes)
    lacking = fmt::format("{} {}, {}", kReadings[static_cast<std::size_t>(version - 1)], kNoWideTimes, kNoNode);
  connection.execute(
      fmt::format("CREATE TEMP VIEW measurement AS SELECT *, {} FROM main.measurement", lacking).c_str());
  if (version >= kVersionOfFeatures) return;
  connection.execute(
      "CREATE TEMP VIEW problem AS SELECT *, CASE WHEN text LIKE '% deterministic%' THEN 'deterministic' ELSE '' END "
      "AS features FROM main.problem");
}

}  // namespace attune
