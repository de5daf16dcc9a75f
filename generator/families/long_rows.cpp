#include "generator/families/long_rows.h"

#include <algorithm>
#include <cstdint>

#include "generator/families/family_word.h"
#include "generator/plan/key_split.h"
#include "generator/plan/launch_rules.h"
#include "generator/rounding.h"

namespace attune {
namespace {
// What is lost grows with the keys between promotions: at 2^17 it is a third of what rounding O to fp16 costs.
constexpr std::int64_t kMostKeysUnpromoted = std::int64_t{1} << 17, kKeysOfPromotion = std::int64_t{1} << 16;

std::int64_t most_keys(const AttentionProblem& problem) {
  return launch_rules::most_keys(launch_rules::call_of(problem), 1);
}
}  // namespace

bool has_long_rows(const AttentionProblem& problem) {
  return problem.pass == Pass::forward && most_keys(problem) > kMostKeysUnpromoted;
}

KernelConfig promoted_for(const AttentionProblem& problem, KernelConfig config) {
  config.promotion_blocks = 0;
  if (!has_long_rows(problem)) return config;
  const int parts = config.key_parts == kFillParts ? 1 : config.key_parts;
  if (ceil_div(most_keys(problem), parts) <= kMostKeysUnpromoted) return config;
  config.promotion_blocks =
      config.family == FamilyWord::sm80 ? 1 : static_cast<int>(kKeysOfPromotion / config.block_kv);
  return config;
}

}  // namespace attune
