#pragma once

#include <optional>
#include <vector>

#include "tuner/database/measurement.h"

namespace attune {

/// How well the cost model foretold the times of one problem. Each config stands for itself by the newest row of its
/// highest rigor.
struct ModelQuality {
  int compared = 0;                        ///< configs with both a time and a prediction
  std::optional<double> rank_correlation;  ///< Spearman's, over them; none for fewer than three or if all are equal
  int first = 0;               ///< how many of the model's order are looked at: kModelFirst, or all there are
  int first_near_best = 0;     ///< of those: how many are ok and within kNearBest of the best
  double first_over_best = 0;  ///< the fastest of those over the best; 0 if none has a time
};
constexpr int kModelFirst = 10;
constexpr double kNearBest = 1.03;

/// The quality over the rows of one problem and device, in any order; `best_us` is the time of the chosen one.
/// Estimates do not count: they have no time of their own.
ModelQuality model_quality(const std::vector<Measurement>& rows, double best_us);

/// Spearman's coefficient, ties by their mean rank; none for fewer than three pairs or if one side is constant. Both
/// have the same length.
std::optional<double> rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

/// Each config by the newest row of its highest rigor, in the order of their first rows; `rows` are oldest first and
/// outlive the result.
std::vector<const Measurement*> standing_rows(const std::vector<Measurement>& rows);

}  // namespace attune
