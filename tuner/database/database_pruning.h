#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tuner/database/current_build.h"

namespace attune {

/// Which rows may go; one that either rule names goes. Neither rule ever changes what TuningDatabase::best() answers or
/// what calls of `build` pick: of each config the row that stands for it (newest of the highest rigor) stays, and the
/// one that stands among the rows that are less stale, but for a failure of a config that has no other outcome.
struct PruneRules {
  std::optional<std::int64_t> keep_latest;        ///< rows per (problem, device, config), at least 1
  std::optional<std::int64_t> failed_older_than;  ///< days; rows of any status but ok
};
struct PrunedRow {
  std::string problem, device, config, status, created_at;
  int sm_count = 0;
};
struct PruneResult {
  std::vector<PrunedRow> removed;  ///< in the order of read_database()
  std::int64_t kept = 0;
};
/// Removes rows and what only they referred to, in one transaction; a dry run only says what would go. Generates the
/// kernels of configs that lose a row and have rows of several builds, some milliseconds each. Throws
/// Error(invalid_argument) without a rule or for one that is out of range, Error(database) if the file is not there,
/// damaged, or cannot be written.
PruneResult prune_database(const std::filesystem::path& path, const PruneRules& rules, bool dry_run,
                           const CurrentBuild& build = CurrentBuild::of_process());

}  // namespace attune
