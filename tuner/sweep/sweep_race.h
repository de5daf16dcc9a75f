#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tuner/search/race.h"
#include "tuner/sweep/sweep_lane.h"

namespace attune {

/// What a final race made of the trials of a sweep.
struct SweepRace {
  std::vector<Measurement> rows;  ///< of the finalists by place, not stored yet; empty if it did not take place
  std::string failure;            ///< why it did not
};

/// Times the finalists alternately on one lane, batch after batch until the race is over. After a batch that fails the
/// race begins anew between fewer, unless `stop_asked()` or there are none fewer. `trials` are those that the race was
/// made of.
SweepRace run_race(FinalRace& race, const std::vector<Measurement>& trials, Rigor rigor, SweepLane& lane,
                   const std::function<bool()>& stop_asked);

/// Whether the race between these rows took place already, in an earlier run. One with the problem's own scores alone
/// is run again if wide ones count.
bool raced_together(const std::vector<Measurement>& rows);

/// The rows of a race among the trials, by place: also those who lost and are no finalists now.
std::vector<Measurement> rows_of_race(const std::vector<Measurement>& trials, const std::string& race);

}  // namespace attune
