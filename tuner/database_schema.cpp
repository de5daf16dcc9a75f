#include "tuner/database_schema.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <type_traits>

#include "tuner/measurement.h"

namespace attune {
namespace {

// The schema of version i + 1 from that of version i. A migration that has shipped never changes.
constexpr std::array<const char*, 2> kMigrations = {R"sql(
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
)sql"};

// What a connection that cannot migrate lays over the tables of version i + 1, so that they are read as those of the
// newest: a temporary view hides the table of its name.
constexpr std::array<const char*, kMigrations.size() - 1> kReadings = {
    "CREATE TEMP VIEW measurement AS SELECT *, '' AS race, 0 AS place FROM main.measurement"};

static_assert(std::endian::native == std::endian::little, "the schema stores little-endian numbers");
static_assert(std::is_same_v<decltype(Measurement::clocks_mhz)::value_type, std::int32_t>, "the schema stores 32 bits");

}  // namespace

int schema_version() { return static_cast<int>(kMigrations.size()); }

void migrate(sqlite::Connection& connection) {
  while (connection.integer("PRAGMA user_version") < schema_version()) {
    sqlite::Transaction transaction(connection);
    // Another process may have been here.
    const auto version = static_cast<int>(connection.integer("PRAGMA user_version"));
    if (version >= schema_version()) return;
    connection.execute(kMigrations[static_cast<std::size_t>(version)]);
    connection.execute(
        fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, version + 1).c_str());
    transaction.commit();
  }
}

void read_as_newest(sqlite::Connection& connection) {
  const std::int64_t version = connection.integer("PRAGMA user_version");
  if (version < 1 || version >= schema_version()) return;
  connection.execute("PRAGMA temp_store = MEMORY");
  connection.execute(kReadings[static_cast<std::size_t>(version - 1)]);
}

}  // namespace attune
