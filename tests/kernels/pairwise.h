#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace attune::tests {

/// One value index for each factor.
using FactorChoice = std::vector<int>;

struct PairwiseTable {
  std::vector<FactorChoice> rows;
  /// Pairs "factor.value factor.value" that no allowed row was found for.
  std::vector<std::string> impossible;
};

/// Few rows in which each pair of values of two different factors occurs, as far as `allowed` lets it. Greedy and
/// seeded: the same on every machine. A pair for which none of so many random rows is allowed counts as impossible.
PairwiseTable pairwise(const std::vector<int>& factor_sizes, const std::function<bool(const FactorChoice&)>& allowed,
                       std::uint32_t seed, int tries = 600);

}  // namespace attune::tests
