#include "generator/plan/key_split.h"

#include "generator/plan/launch_rules.h"

namespace attune {

std::int32_t KeySplit::parts_of(const AttentionProblem& problem) const {
  if (!is_split()) return 1;
  return static_cast<std::int32_t>(
      launch_rules::parts_of(launch_rules::split_of(*this), launch_rules::call_of(problem)));
}

}  // namespace attune
