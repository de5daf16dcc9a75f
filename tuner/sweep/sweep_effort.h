#pragma once

#include <cstddef>

#include "tuner/database/measurement.h"

namespace attune {

/// How far a sweep goes at each rigor, unless the options say otherwise.
struct SweepEffort {
  int model_top = 10;            ///< of the cost model's order, tried before anything is learnt
  int patience = 40;             ///< trials without an improvement that end the search; 0: the whole space
  double sample_seconds = 0.05;  ///< of GPU time for the samples of a trial
  double race_seconds = 0.5;   ///< of GPU time for the final race; up to 4 times as long where it is close (FinalRace)
  double budget_seconds = 60;  ///< no trial begins later; 0: no limit
};

/// estimate: the model's first ones, proven and not timed. measure: enough for most problems, with a patience of a 25th
/// of the space, from 15 to 40 trials. patient: a fifth of the space, from 75 to 200, and longer samples. exhaustive:
/// every config of the space.
SweepEffort effort_of(Rigor rigor, std::size_t space_size);

}  // namespace attune
