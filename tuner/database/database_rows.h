#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tuner/database/measurement.h"
#include "tuner/database/sqlite.h"

namespace attune {

/// What read_row() reads, in its order; for SELECT {kRowColumns} FROM {kRowTables}, where the measurement is called m,
/// its problem p, its device d and its provenance v.
inline constexpr const char* kRowColumns =
    " p.text, d.name, d.sm_count, m.config, m.status, m.reason, m.rigor, m.samples_us, m.clocks_mhz, m.median_us, "
    "m.p20_us, m.p80_us,"
    " m.predicted_us, m.sm_clock_mhz, m.error_o, m.error_lse, m.registers, m.spill_bytes, m.shared_bytes, m.compile_ms,"
    " m.source_hash, v.compiler, v.driver, v.protocol, v.attune_version, m.created_at, m.race, m.place, m.sequence,"
    " m.wide_samples_us, m.wide_median_us, m.host, m.gpu_uuid, m.driver_build, m.power_limit_w, m.sm_clock_limit_mhz,"
    " m.memory_clock_mhz ";
inline constexpr const char* kRowTables =
    " measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id"
    " JOIN provenance v ON v.id = m.provenance_id ";

constexpr int kRowColumnCount = 37;

/// What rows of the first four schemas lack, as the columns that it is read from.
inline constexpr const char* kNoWideTimes = " x'' AS wide_samples_us, 0.0 AS wide_median_us ";
/// What rows of the first seven schemas lack, likewise.
inline constexpr const char* kNoNode =
    " '' AS host, '' AS gpu_uuid, '' AS driver_build, 0 AS power_limit_w, 0 AS sm_clock_limit_mhz,"
    " 0 AS memory_clock_mhz ";

/// The same rows, the same order, whatever the order of storing: for export, diff and pruning.
inline constexpr const char* kRowOrder =
    " ORDER BY p.text, d.name, d.sm_count, m.config, m.created_at, m.content_hash ";

/// The row that a query of kRowColumns stands at. None for a row whose problem or config this version cannot read, or
/// that names an unknown status or rigor: a miss, never an error. Its problem and times are as in_stored_form() has
/// them, but for a time that is none.
std::optional<Measurement> read_row(const sqlite::Statement& row);

/// What orders rows by age, the newest first: is_newer() as SQL, of a measurement called m.
inline constexpr const char* kNewestFirst = " m.sequence DESC, time_order(m.created_at) DESC, m.content_hash DESC ";
inline constexpr const char* kOldestFirst = " m.sequence, time_order(m.created_at), m.content_hash ";

/// The row as it is stored: with the simplest mask that says the same, and its times as canonical_time(). Throws
/// Error(invalid_argument) that names a time that is none.
Measurement in_stored_form(Measurement measurement);

/// Over all fields of a row, so that equal rows (and only they) have equal hashes on any machine. A row that was not
/// raced, has no sequence, no wide times, no node, or a templates' hash, has the hash that the schema gave it that knew
/// no other.
std::string content_hash(const Measurement& measurement);

/// The hash of the row that a query of kRowColumns stands at, whether or not this version can read it. It differs from
/// the stored one exactly if the row was changed after it was stored.
std::string stored_content_hash(const sqlite::Statement& row);

/// Writes the configs of all rows in the words of this version, and their hashes anew, in a file of the fourth schema.
/// A row that this version cannot read, or whose hash does not fit it, stays as it is.
void respell_configs(sqlite::Connection& db);

/// Writes the problems and times of all rows as in_stored_form() has them, and their hashes anew, in a file of the
/// fifth schema. A row that this version cannot read, whose hash does not fit it, or whose time is none stays as it is;
/// two that say the same become one.
void respell_problems_and_times(sqlite::Connection& db);

/// The sequence that a new row gets: that of its race if the race has rows here, else 1 + the greatest. Inside the
/// transaction that stores it. Throws sqlite::Failure.
std::int64_t next_sequence(sqlite::Connection& db, const Measurement& measurement);

/// Whether a row is stored that equals this one in all but its sequence. Throws sqlite::Failure.
bool is_stored(sqlite::Connection& db, const Measurement& measurement);

/// Stores a row in_stored_form() with its problem, device and provenance; false if it is there already. Inside a
/// transaction of the caller's. Throws sqlite::Failure.
bool insert_row(sqlite::Connection& db, const Measurement& measurement);

}  // namespace attune
