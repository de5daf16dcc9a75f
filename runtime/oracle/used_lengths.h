#pragma once

#include <cstdint>
#include <vector>

#include "generator/problem/mask_geometry.h"

namespace attune {

/// How many rows each sequence of a problem with used lengths has, as a call says it: a number for each batch entry,
/// or none, for all rows. A number that is none of 0 to all counts as the nearest of these.
struct UsedLengths {
  std::vector<std::int32_t> queries, keys;
};

/// The rows and the mask of each batch entry; of any problem. Throws Error(invalid_argument) for another number of
/// lengths than batch entries, or any where the problem has none.
std::vector<MaskGeometry> sequences_of(const AttentionProblem& problem, const UsedLengths& used);

/// The keys that a query of all that are stored attends to: none behind the sequence's last query.
RowRange attended_keys(const MaskGeometry& sequence, std::int64_t query);
RowRange attending_queries(const MaskGeometry& sequence, std::int64_t key);  ///< the other way about

/// Random lengths of a problem, evenly from none to all, but for the first batch entry of several, which has all.
UsedLengths random_used_lengths(const AttentionProblem& problem, std::uint64_t seed);

}  // namespace attune
