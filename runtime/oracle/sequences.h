#pragma once

#include <cstdint>
#include <vector>

#include "generator/problem/mask_geometry.h"
#include "runtime/oracle/term_values.h"

namespace attune {

/// The rows and the mask of each batch entry, of any problem, by its used lengths if it has some. A number of rows that
/// is none of 0 to all counts as the nearest of these.
std::vector<MaskGeometry> sequences_of(const AttentionProblem& problem, const TermValues& terms);

/// The keys that a query of all that are stored attends to: none behind the sequence's last query.
RowRange attended_keys(const MaskGeometry& sequence, std::int64_t query);
RowRange attending_queries(const MaskGeometry& sequence, std::int64_t key);  ///< the other way about

}  // namespace attune
