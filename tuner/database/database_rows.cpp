#include "tuner/database/database_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/error.h"
#include "tuner/database/problem_columns.h"

namespace attune {

namespace {

// A row as it is stored: texts that this version may not know, and what it reads of any version.
struct StoredRow {
  std::string problem, config, status, rigor;
  Measurement fields;  // without those four
};

StoredRow read_stored(const sqlite::Statement& row) {
  StoredRow stored;
  Measurement& m = stored.fields;
  int column = 0;
  stored.problem = row.text(column++);
  m.device = row.text(column++);
  m.sm_count = row.int32(column++);
  stored.config = row.text(column++);
  stored.status = row.text(column++);
  m.reason = row.text(column++);
  const std::int64_t rigor = row.integer(column++);
  if (rigor >= 0 && rigor <= static_cast<int>(Rigor::exhaustive)) stored.rigor = to_string(static_cast<Rigor>(rigor));
  m.samples_us = row.numbers<double>(column++);
  m.clocks_mhz = row.numbers<std::int32_t>(column++);
  m.median_us = row.real(column++);
  m.p20_us = row.real(column++);
  m.p80_us = row.real(column++);
  m.predicted_us = row.real(column++);
  m.sm_clock_mhz = row.int32(column++);
  m.error_o = row.real(column++);
  m.error_lse = row.real(column++);
  m.registers = row.int32(column++);
  m.spill_bytes = row.int32(column++);
  m.shared_bytes = static_cast<std::size_t>(row.integer(column++));
  m.compile_ms = row.real(column++);
  m.source_hash = row.text(column++);
  m.compiler = row.text(column++);
  m.driver = row.text(column++);
  m.protocol = row.text(column++);
  m.attune_version = row.text(column++);
  m.created_at = row.text(column++);
  m.race = row.text(column++);
  m.place = row.int32(column++);
  m.sequence = row.integer(column++);
  m.wide_samples_us = row.numbers<double>(column++);
  m.wide_median_us = row.real(column++);
  m.node.host = row.text(column++);
  m.node.gpu_uuid = row.text(column++);
  m.node.driver_build = row.text(column++);
  m.node.power_limit_w = row.int32(column++);
  m.node.sm_clock_limit_mhz = row.int32(column++);
  m.node.memory_clock_mhz = row.int32(column++);
  return stored;
}

std::string hash_of(std::string_view problem, std::string_view config, std::string_view status, std::string_view rigor,
                    const Measurement& m) {
  // A NaN loses its sign in the database, and prints with it.
  const auto without_sign = [](double value) { return std::isnan(value) ? std::nan("") : value; };
  std::string_view source = m.source_hash;
  if (source.starts_with(kTemplatesMark)) source.remove_prefix(kTemplatesMark.size());
  std::string bytes = fmt::format(
      "{}\n{}\n{}\n{}\n{}\n{}\n{}\n{:a} {:a} {:a} {:a}\n{}\n{:a} {:a}\n{} {} {}\n{:a}\n{}\n{}\n{}\n{}\n{}\n{}\n",
      problem, config, m.device, m.sm_count, status, m.reason, rigor, m.median_us, m.p20_us, m.p80_us, m.predicted_us,
      m.sm_clock_mhz, without_sign(m.error_o), without_sign(m.error_lse), m.registers, m.spill_bytes, m.shared_bytes,
      m.compile_ms, source, m.compiler, m.driver, m.protocol, m.attune_version, m.created_at);
  for (const double sample : m.samples_us) bytes += fmt::format("{:a} ", sample);
  for (const int clock : m.clocks_mhz) bytes += fmt::format("{} ", clock);
  if (!m.race.empty() || m.place != 0) bytes += fmt::format("\n{}\n{}\n", m.race, m.place);
  if (m.sequence != 0) bytes += fmt::format("\nsequence {}\n", m.sequence);
  if (!m.wide_samples_us.empty() || m.wide_median_us != 0) {
    bytes += fmt::format("\nwide {:a}\n", without_sign(m.wide_median_us));
    for (const double sample : m.wide_samples_us) bytes += fmt::format("{:a} ", sample);
  }
  if (const NodeGpu& node = m.node; node.is_known()) {
    bytes += fmt::format("\nnode {}\n{}\n{}\n{} {} {}\n", node.host, node.gpu_uuid, node.driver_build,
                         node.power_limit_w, node.sm_clock_limit_mhz, node.memory_clock_mhz);
  }
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// A migration from an older schema inserts before there is a column of features.
void insert_problem(sqlite::Connection& db, const AttentionProblem& problem, bool has_features = true) {
  std::vector<ProblemColumn> columns = problem_columns(problem);
  if (!has_features) columns.pop_back();
  std::string marks = "?";
  for (std::size_t i = 0; i < columns.size(); ++i) marks += ", ?";
  sqlite::Statement insert(
      db, fmt::format("INSERT INTO problem (text, {}) VALUES ({}) ON CONFLICT DO NOTHING", names_of(columns), marks));
  insert.bind(canonical_text(problem));
  for (const ProblemColumn& column : columns) {
    if (column.text) {
      insert.bind(*column.text);
    } else if (column.real) {
      insert.bind(*column.real);
    } else {
      insert.bind(column.whole);
    }
  }
  insert.step();
}

}  // namespace

std::optional<Measurement> read_row(const sqlite::Statement& row) {
  StoredRow stored = read_stored(row);
  Measurement& m = stored.fields;
  const auto status = parse_measurement_status(stored.status);
  const auto rigor = parse_rigor(stored.rigor);
  if (!status || !rigor) return std::nullopt;
  m.status = *status;
  m.rigor = *rigor;
  try {
    m.problem = parse_problem(stored.problem);
    m.config = parse_config(stored.config);
  } catch (const Error&) {
    return std::nullopt;
  }
  for (std::string* time : {&m.created_at, &m.race}) *time = time_order(*time);
  return std::move(m);
}

Measurement in_stored_form(Measurement m) {
  m.problem = simplest_mask(m.problem);
  for (std::string* time : {&m.created_at, &m.race}) {
    if (time == &m.race && time->empty()) continue;
    const std::optional<std::string> canonical = canonical_time(*time);
    if (!canonical) {
      throw Error(ErrorCode::invalid_argument, fmt::format("its {} is \"{}\", expected UTC as \"2025-01-31T12:00:00Z\"",
                                                           time == &m.race ? "race" : "created_at", *time));
    }
    *time = *canonical;
  }
  return m;
}

std::string content_hash(const Measurement& m) {
  return hash_of(canonical_text(m.problem), canonical_text(m.config), to_string(m.status), to_string(m.rigor), m);
}

std::string stored_content_hash(const sqlite::Statement& row) {
  const StoredRow stored = read_stored(row);
  return hash_of(stored.problem, stored.config, stored.status, stored.rigor, stored.fields);
}

void respell_configs(sqlite::Connection& db) {
  struct Respelled {
    std::int64_t id;
    std::string config, hash;
  };
  std::vector<Respelled> respelled;
  {
    sqlite::Statement rows(db, fmt::format("WITH measurement AS (SELECT *, {}, {} FROM main.measurement) "
                                           "SELECT {}, m.id, m.content_hash FROM {}",
                                           kNoWideTimes, kNoNode, kRowColumns, kRowTables));
    while (rows.step()) {
      const auto row = read_row(rows);
      if (!row || stored_content_hash(rows) != rows.text(kRowColumnCount + 1)) continue;
      respelled.push_back({rows.integer(kRowColumnCount), canonical_text(row->config), content_hash(*row)});
    }
  }
  for (const Respelled& row : respelled) {
    sqlite::Statement(db, "UPDATE OR IGNORE measurement SET config = ?, content_hash = ? WHERE id = ?")
        .bind(row.config)
        .bind(row.hash)
        .bind(row.id)
        .step();
  }
}

void respell_problems_and_times(sqlite::Connection& db) {
  struct Respelled {
    std::int64_t id;
    AttentionProblem problem;
    std::string created_at, race, hash;
  };
  std::vector<std::int64_t> problems;
  {
    sqlite::Statement query(db, "SELECT id, text FROM problem");
    while (query.step()) {
      try {
        if (canonical_text(parse_problem(query.text(1))) != query.text(1)) problems.push_back(query.integer(0));
      } catch (const Error&) {
        // A row of a newer version.
      }
    }
  }
  std::vector<Respelled> respelled;
  {
    sqlite::Statement rows(
        db, fmt::format("WITH measurement AS (SELECT *, {} FROM main.measurement) "
                        "SELECT {}, m.id, m.content_hash FROM {} WHERE m.problem_id IN (SELECT value FROM "
                        "json_each(?)) OR time_order(m.created_at) <> m.created_at OR time_order(m.race) <> m.race",
                        kNoNode, kRowColumns, kRowTables));
    rows.bind(fmt::format("[{}]", fmt::join(problems, ",")));
    while (rows.step()) {
      const auto row = read_row(rows);
      if (!row || stored_content_hash(rows) != rows.text(kRowColumnCount + 1)) continue;
      respelled.push_back(
          {rows.integer(kRowColumnCount), row->problem, row->created_at, row->race, content_hash(*row)});
    }
  }
  for (const Respelled& row : respelled) {
    insert_problem(db, row.problem, false);
    sqlite::Statement(db,
                      "UPDATE OR IGNORE measurement SET problem_id = (SELECT id FROM problem WHERE text = ?), "
                      "created_at = ?, race = ?, content_hash = ? WHERE id = ?")
        .bind(canonical_text(row.problem))
        .bind(row.created_at)
        .bind(row.race)
        .bind(row.hash)
        .bind(row.id)
        .step();
    // The same row in the other spelling was here already.
    sqlite::Statement(db, "DELETE FROM measurement WHERE id = ? AND content_hash <> ?")
        .bind(row.id)
        .bind(row.hash)
        .step();
  }
  sqlite::Statement(db,
                    "DELETE FROM problem WHERE id IN (SELECT value FROM json_each(?)) AND id NOT IN (SELECT problem_id "
                    "FROM measurement)")
      .bind(fmt::format("[{}]", fmt::join(problems, ",")))
      .step();
}

std::int64_t next_sequence(sqlite::Connection& db, const Measurement& m) {
  if (!m.race.empty()) {
    sqlite::Statement race(db, fmt::format("SELECT max(m.sequence) FROM {} WHERE p.text = ? AND d.name = ? AND "
                                           "d.sm_count = ? AND m.race = ?",
                                           kRowTables));
    race.bind(canonical_text(m.problem)).bind(m.device).bind(m.sm_count).bind(m.race);
    if (race.step() && race.integer(0) > 0) return race.integer(0);
  }
  return 1 + db.integer("SELECT coalesce(max(sequence), 0) FROM measurement");
}

bool is_stored(sqlite::Connection& db, const Measurement& measurement) {
  Measurement wanted = measurement;
  wanted.sequence = 0;
  const std::string hash = content_hash(wanted);
  sqlite::Statement alike(db, fmt::format("SELECT {} FROM {} WHERE p.text = ? AND d.name = ? AND d.sm_count = ? AND "
                                          "m.config = ? AND m.created_at = ?",
                                          kRowColumns, kRowTables));
  alike.bind(canonical_text(wanted.problem)).bind(wanted.device).bind(wanted.sm_count);
  alike.bind(canonical_text(wanted.config)).bind(wanted.created_at);
  while (alike.step()) {
    auto row = read_row(alike);
    if (!row) continue;
    row->sequence = 0;
    if (content_hash(*row) == hash) return true;
  }
  return false;
}

bool insert_row(sqlite::Connection& db, const Measurement& m) {
  const std::string text = canonical_text(m.problem);
  insert_problem(db, m.problem);
  sqlite::Statement(db, "INSERT INTO device (name, sm_count) VALUES (?, ?) ON CONFLICT DO NOTHING")
      .bind(m.device)
      .bind(m.sm_count)
      .step();
  sqlite::Statement(
      db,
      "INSERT INTO provenance (compiler, driver, protocol, attune_version) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING")
      .bind(m.compiler)
      .bind(m.driver)
      .bind(m.protocol)
      .bind(m.attune_version)
      .step();
  sqlite::Statement(
      db,
      "INSERT INTO measurement (problem_id, device_id, provenance_id, content_hash, config, source_hash, status, "
      "reason, rigor, "
      "samples_us, "
      "clocks_mhz, median_us, p20_us, p80_us, predicted_us, sm_clock_mhz, error_o, error_lse, registers, "
      "spill_bytes, "
      "shared_bytes, compile_ms, created_at, race, place, sequence, wide_samples_us, wide_median_us, "
      "host, gpu_uuid, driver_build, power_limit_w, sm_clock_limit_mhz, memory_clock_mhz) VALUES ("
      "(SELECT id FROM problem WHERE text = ?), (SELECT id FROM device WHERE name = ? AND sm_count = ?), "
      "(SELECT id FROM provenance WHERE compiler = ? AND driver = ? AND protocol = ? AND attune_version = ?), "
      "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT "
      "(content_hash) "
      "DO "
      "NOTHING")
      .bind(text)
      .bind(m.device)
      .bind(m.sm_count)
      .bind(m.compiler)
      .bind(m.driver)
      .bind(m.protocol)
      .bind(m.attune_version)
      .bind(content_hash(m))
      .bind(canonical_text(m.config))
      .bind(m.source_hash)
      .bind(to_string(m.status))
      .bind(m.reason)
      .bind(static_cast<int>(m.rigor))
      .bind_blob(m.samples_us.data(), m.samples_us.size() * sizeof(double))
      .bind_blob(m.clocks_mhz.data(), m.clocks_mhz.size() * sizeof(std::int32_t))
      .bind(m.median_us)
      .bind(m.p20_us)
      .bind(m.p80_us)
      .bind(m.predicted_us)
      .bind(m.sm_clock_mhz)
      .bind(m.error_o)
      .bind(m.error_lse)
      .bind(m.registers)
      .bind(m.spill_bytes)
      .bind(static_cast<std::int64_t>(m.shared_bytes))
      .bind(m.compile_ms)
      .bind(m.created_at)
      .bind(m.race)
      .bind(m.place)
      .bind(m.sequence)
      .bind_blob(m.wide_samples_us.data(), m.wide_samples_us.size() * sizeof(double))
      .bind(m.wide_median_us)
      .bind(m.node.host)
      .bind(m.node.gpu_uuid)
      .bind(m.node.driver_build)
      .bind(m.node.power_limit_w)
      .bind(m.node.sm_clock_limit_mhz)
      .bind(m.node.memory_clock_mhz)
      .step();
  return db.changes() > 0;
}

}  // namespace attune
