#include "generator/families/long_rows.h"

#include <algorithm>
#include <cstdint>

#include "generator/families/family_word.h"
#include "generator/plan/key_split.h"
#include "generator/plan/launch_rules.h"
#include "generator/rounding.h"

namespace attune {

std::int64_t most_keys_of_row(const AttentionProblem& problem) {
  return launch_rules::most_keys(launch_rules::call_of(problem), 1);
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
