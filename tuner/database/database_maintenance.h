#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/database/measurement.h"

namespace attune {

/// Everything that a file holds, for export and merge.
struct DatabaseContents {
  std::vector<Measurement> rows;  ///< by problem, device, config, then from old to new: the same rows, the same order
  std::int64_t unreadable = 0;    ///< rows of a newer version, left out
  std::int64_t changed = 0;  ///< rows that were changed after they were stored, left out: examine_database() names them
  std::int64_t untimed = 0;  ///< rows whose time is none, left out: examine_database() names them
  std::string damage;        ///< what is wrong with the file; empty if nothing is
  std::int64_t lost = 0;     ///< rows that the damage took, as far as can be told
};
enum class Damage {
  refuse,   ///< throws
  salvage,  ///< reads what can be read; every row whose content hash holds is as it was stored
};
/// Changes nothing and creates nothing. Throws Error(database) that names the file if it is not there, of another
/// program, or damaged: with Damage::salvage only if nothing of it can be read.
DatabaseContents read_database(const std::filesystem::path& path, Damage damage = Damage::refuse);

struct DatabaseInfo {
  std::filesystem::path path;
  bool read_only = false;            ///< results cannot be stored in it: permissions, or a newer schema
  int schema = 0, known_schema = 0;  ///< the file's, and the newest that this program knows
  std::int64_t rows = 0, problems = 0, devices = 0;
  std::map<std::string, std::int64_t> rows_by_status, rows_by_rigor;
  std::string oldest, newest;          ///< created_at; empty without rows
  std::int64_t file_bytes = 0;         ///< of the database itself
  std::int64_t log_bytes = 0;          ///< of its write-ahead log
  std::int64_t reclaimable_bytes = 0;  ///< free pages, which vacuum_database() gives back
  std::string journal_mode;            ///< "wal", "delete", ...
  std::string file_system;             ///< "ext4", "NFS", ...
  bool network_file_system = false;
  std::vector<std::string> notes;  ///< TuningDatabase::notes()
};
/// Changes nothing and creates nothing. Throws Error(database) if it is not there or cannot be read.
DatabaseInfo describe_database(const std::filesystem::path& path);

struct VacuumResult {
  std::int64_t bytes_before = 0, bytes_after = 0;  ///< with the write-ahead log
};
/// Rewrites the file without free pages and merges its log. Throws Error(database) if the file is not there,
/// damaged, or cannot be written.
VacuumResult vacuum_database(const std::filesystem::path& path);

}  // namespace attune
