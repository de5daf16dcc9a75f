#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tuner/database/measurement.h"
#include "tuner/sweep/row_writer.h"

namespace attune {

/// Which config stands for a problem while a sweep of it has no race. A trial of the fastest of many looks faster than
/// it is. So until the race has decided, and if it never takes place (a failure, a signal, a power cut), the database
/// must say what stands: the config that a race elected before this sweep, else the default. Its trial is stored as
/// elected, by a race of one row; rows of further lanes wait for that of the default. Not thread-safe.
class StandingConfig {
 public:
  /// What the first trials must settle. Rows of Rigor::estimate elect nothing: they have no time.
  struct Known {
    KernelConfig default_config;
    std::optional<KernelConfig> elected;  ///< by a race before this sweep, and in its space
    bool elected_is_reused = false;       ///< its row needs no trial, and so its race stands
    bool default_is_first = false;        ///< false: the space lacks the default, or keeps it for later; no row waits
    Rigor rigor = Rigor::estimate;
  };
  /// `writer` outlives this.
  StandingConfig(const Known& known, RowWriter& writer)
      : known_(known), writer_(writer), default_is_stored_(!known.default_is_first) {}

  /// Stores a trial's row, unless it lacks its time: that says nothing of the config.
  void store_trial(const Measurement& row);
  /// Completes a stored row of an earlier run: an earlier version, or a sweep that was killed, may have left the
  /// default's row without its election.
  void store_reused(const Measurement& row);

  /// The row that stands without a race: of the config that was elected before, if it is still right, else of the
  /// default. None if neither has a time. The database says the same: store_trial() saw to it.
  const Measurement* row_that_stands(const std::vector<Measurement>& trials) const;

 private:
  bool elects(const Measurement& row) const;
  void default_is_stored();

  const Known known_;
  RowWriter& writer_;
  bool default_is_stored_;
  std::vector<Measurement> waiting_;  // trials that ended before the default's
};

/// What candidates are compared by before the race: the median, or for Rigor::estimate the prediction.
double trial_time(const Measurement& row, Rigor rigor);

/// Whether a trial was right and could not be timed, since the GPU was too hot all the while: no row of a database.
bool lacks_time(const Measurement& row);

}  // namespace attune
