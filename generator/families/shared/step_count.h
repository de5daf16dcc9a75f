#pragma once

#include "generator/config/kernel_config.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// Steps (blocks of keys) of a tile of queries, over all tiles of a head.
struct StepCount {
  double mean = 0, longest = 0, shortest = 0;
  double masked = 0;  ///< of the mean: those that need a predicate
};

/// Counted on at most 64 tiles, evenly spread.
StepCount count_steps(const AttentionProblem& problem, const KernelConfig& config);

}  // namespace attune
