#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/system/state_mutex.h"
#include "tuner/database/measurement.h"
#include "tuner/database/sqlite.h"

namespace attune {

/// Reads the rows of one file that can be believed, and notes each other one, to be told to the log once. Thread-safe.
/// What it takes is a query of kRowColumns, m.content_hash and m.id that stands at a row; throws sqlite::Failure.
class SoundRows {
 public:
  explicit SoundRows(std::filesystem::path path) : path_(std::move(path)) {}

  /// The row, unless it was changed after it was stored, or impossibility() says something of it: then `passed_over`
  /// gets its id. None of a newer version's either.
  std::optional<Measurement> read(const sqlite::Statement& query, std::vector<std::int64_t>& passed_over);
  /// The same of a row that may be picked: error_beyond_bounds() says nothing of it either.
  std::optional<Measurement> read_pickable(const sqlite::Statement& query, std::vector<std::int64_t>& passed_over);

  /// Logs what was noted, once the question is answered: who hears of it may wait for what a caller holds, and for a
  /// fork.
  void tell();

 private:
  void note(const sqlite::Statement& query, const std::string& what);

  const std::filesystem::path path_;
  StateMutex mutex_;            // guards what follows
  std::set<std::string> told_;  // content hashes
  std::vector<std::string> to_tell_;
};

}  // namespace attune
