#include "generator/families/long_rows.h"

#include <algorithm>
#include <cstdint>

#include "generator/families/family_word.h"
#include "generator/plan/key_split.h"
#include "generator/plan/launch_rules.h"
#include "generator/problem/mask_geometry.h"
#include "generator/rounding.h"

namespace attune {

namespace {

// One long among short ones has half of all rows.
AttentionProblem with_longest_sequence(const AttentionProblem& problem) {
  if (!problem.packed) return problem;
  const auto rows = [&](std::int64_t all, std::int64_t most) {
    const bool one_long = problem.distribution == LengthDistribution::one_long;
    const std::int64_t share = ceil_div(all, one_long ? 2 : 4), of_mean = 5 * ceil_div(all, problem.batch);
    return std::min({std::max(share, of_mean), all, most});
  };
  return with_sequence_lengths(problem, rows(problem.seq_q, problem.pair_queries()),
                               rows(problem.seq_kv, problem.pair_keys()));
}

}  // namespace

std::int64_t most_keys_of_row(const AttentionProblem& problem) {
  return launch_rules::most_keys(launch_rules::call_of(with_longest_sequence(problem)), 1);
}

std::int64_t most_queries_of_key(const AttentionProblem& problem) {
  return MaskGeometry(with_longest_sequence(problem)).most_queries();
}

bool has_long_rows(const AttentionProblem& problem) {
  if (problem.pass != Pass::forward || problem.invariant) return false;  // whose parts are short
  return most_keys_of_row(problem) > kMostRowsInAccumulators;
}

KernelConfig promoted_for(const AttentionProblem& problem, KernelConfig config) {
  config.promotion_blocks = 0;
  if (!has_long_rows(problem)) return config;
  const int parts = config.key_parts == kFillParts ? 1 : config.key_parts;
  if (ceil_div(most_keys_of_row(problem), parts) <= kMostRowsInAccumulators) return config;
  config.promotion_blocks =
      config.family == FamilyWord::sm80 ? 1 : static_cast<int>(kRowsOfPromotion / config.block_kv);
  return config;
}

}  // namespace attune
