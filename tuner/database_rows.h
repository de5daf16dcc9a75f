#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tuner/measurement.h"
#include "tuner/sqlite.h"

namespace attune {

/// What read_row() reads, in its order; for SELECT {kRowColumns} FROM {kRowTables}, where the measurement is called m,
/// its problem p, its device d and its provenance v.
inline constexpr const char* kRowColumns =
    " p.text, d.name, d.sm_count, m.config, m.status, m.reason, m.rigor, m.samples_us, m.clocks_mhz, m.median_us, "
    "m.p20_us, m.p80_us,"
    " m.predicted_us, m.sm_clock_mhz, m.error_o, m.error_lse, m.registers, m.spill_bytes, m.shared_bytes, m.compile_ms,"
    " v.templates_hash, v.compiler, v.driver, v.protocol, v.attune_version, m.created_at, m.race, m.place ";
inline constexpr const char* kRowTables =
    " measurement m JOIN problem p ON p.id = m.problem_id JOIN device d ON d.id = m.device_id"
    " JOIN provenance v ON v.id = m.provenance_id ";

constexpr int kRowColumnCount = 28;

/// The same rows, the same order, whatever the order of storing: for export, diff and pruning.
inline constexpr const char* kRowOrder =
    " ORDER BY p.text, d.name, d.sm_count, m.config, m.created_at, m.content_hash ";

/// The row that a query of kRowColumns stands at. None for a row whose problem or config this version cannot read, or
/// that names an unknown status or rigor: a miss, never an error.
std::optional<Measurement> read_row(const sqlite::Statement& row);

/// Over all fields of a row, so that equal rows (and only they) have equal hashes on any machine. A row that was not
/// raced has the hash that the first schema gave it.
std::string content_hash(const Measurement& measurement);

/// The hash of the row that a query of kRowColumns stands at, whether or not this version can read it. It differs from
/// the stored one exactly if the row was changed after it was stored.
std::string stored_content_hash(const sqlite::Statement& row);

/// Stores a row with its problem, device and provenance; false if it is there already. Inside a transaction of the
/// caller's. Throws sqlite::Failure.
bool insert_row(sqlite::Connection& db, const Measurement& measurement);

/// The mask's name in the table of problems.
std::string_view mask_text(MaskKind mask);

}  // namespace attune
