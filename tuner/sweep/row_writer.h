#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "tuner/database/tuning_database.h"

namespace attune {

/// Stores the rows of a sweep as they come. Rows that cannot be stored (a lock, a full disk) wait for the next ones and
/// for the end of the sweep: a lock ends, and space is freed. Not thread-safe.
class RowWriter {
 public:
  /// `database` and `stop` outlive this; `stop` may be null.
  RowWriter(TuningDatabase& database, const std::atomic<bool>* stop) : database_(database), stop_(stop) {}

  /// Stores rows now, together or none of them: those of a race belong together.
  void store(std::vector<Measurement> rows);

  /// What finish() could not store.
  struct Unsaved {
    std::vector<Measurement> rows;
    std::string note;  ///< how many of how many, and why; empty if there are none
  };
  /// Tries to store what waits a few times more, with a pause before each further attempt.
  Unsaved finish();

 private:
  void save();

  TuningDatabase& database_;
  const std::atomic<bool>* const stop_;
  std::vector<std::vector<Measurement>> waiting_;  // in the order of their results; those of a race together
  std::size_t stored_or_waiting_ = 0;              // rows
  std::string not_saved_because_;
  std::chrono::steady_clock::time_point next_saving_{};
};

}  // namespace attune
