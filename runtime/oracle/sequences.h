#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generator/problem/mask_geometry.h"
#include "runtime/oracle/term_values.h"

namespace attune {

/// The rows and the mask of each batch entry, or packed sequence, of any problem, by its used lengths if it has some. A
/// number of rows that is none of 0 to all counts as the nearest of these. Where terms do not say where packed
/// sequences begin they have distributed_lengths().
std::vector<MaskGeometry> sequences_of(const AttentionProblem& problem, const TermValues& terms);

/// The keys that a query of all that are stored attends to: none behind the sequence's last query.
RowRange attended_keys(const MaskGeometry& sequence, std::int64_t query);
RowRange attending_queries(const MaskGeometry& sequence, std::int64_t key);  ///< the other way about

/// One of packed sequences as a problem of its own: of one batch entry that has its rows (one, which is not used, where
/// it has none), of which the used lengths among `terms` count. Rows behind the last sequence are its rows, and do not
/// count.
struct PackedSequence {
  AttentionProblem problem;
  TermValues terms;
  std::int64_t first_query = 0, stored_queries = 0, first_key = 0, stored_keys = 0;
};
std::vector<PackedSequence> packed_sequences_of(const AttentionProblem& problem, const TermValues& terms);

/// `count` rows of an operand of all sequences from row `first` on, (heads, rows, columns); zeros behind the last.
std::vector<std::uint16_t> rows_of(const AttentionProblem& problem, std::span<const std::uint16_t> elements,
                                   Operand operand, std::int64_t first, std::int64_t count);

}  // namespace attune
