#pragma once

#include <cstddef>
#include <vector>

#include "tuner/comparison.h"
#include "tuner/measurement.h"

namespace attune {

/// Which candidates a final race is between, and what it decides. Plain functions of values: the same rows and samples
/// give the same winner, whoever asks.
struct RaceRules {
  double reach = 1.03;       ///< finalists' times lie within this of the fastest
  int max_finalists = 6;     ///< the default config may be one more
  double margin = 1.005;     ///< a time is only slower if it is so by more than this
  double confidence = 0.95;  ///< of the interval that says so
};

/// Indices into `rows` of those that go into the race, the fastest first: those that are ok, timed and within reach of
/// the fastest, and the default config whatever its time (last, if it would not be in otherwise). Empty if no row is
/// ok. Of rows of one config the last stands for it.
std::vector<std::size_t> finalists(const std::vector<Measurement>& rows, const KernelConfig& default_config,
                                   const RaceRules& rules = {});

/// Places of a race, as indices into `configs`, the winner first. `samples_us[i][r]` is the time of config i in round
/// r; all have the same number of rounds, at least 6.
///
/// Those that cannot be told from the fastest are ties: the interval of the median of their time over the fastest's,
/// round by round, reaches below `margin`. Of the ties the default config wins if it is one, else the first by
/// canonical text, so that two runs agree and no choice loses to the default by noise. What is slower than the default
/// never wins, however noisy. The others follow by their median.
std::vector<std::size_t> places(const std::vector<KernelConfig>& configs,
                                const std::vector<std::vector<double>>& samples_us, const KernelConfig& default_config,
                                const RaceRules& rules = {});

/// Two rows of one problem and device: round by round if they are of one race, else by all of their samples.
Comparison compare_rows(const Measurement& a, const Measurement& b, const ComparisonOptions& options = {});

}  // namespace attune
