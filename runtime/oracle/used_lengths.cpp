#include "runtime/oracle/used_lengths.h"

#include <algorithm>
#include <span>
#include <string>

#include "generator/error.h"

namespace attune {
namespace {

std::int64_t length_of(std::span<const std::int32_t> lengths, std::int64_t batch, std::int64_t all) {
  return lengths.empty() ? all : std::clamp<std::int64_t>(lengths[static_cast<std::size_t>(batch)], 0, all);
}

void require_lengths(const AttentionProblem& problem, std::span<const std::int32_t> lengths, const char* of) {
  const auto count = static_cast<std::int64_t>(lengths.size());
  if (count == 0 || (problem.has_used_lengths() && count == problem.batch)) return;
  throw Error(ErrorCode::invalid_argument,
              std::to_string(count) + " used lengths of " + of + " for " + canonical_text(problem) +
                  (problem.has_used_lengths() ? ", which has another number of batch entries" : ", which has none"));
}

}  // namespace

std::vector<MaskGeometry> sequences_of(const AttentionProblem& problem, const UsedLengths& used) {
  require_lengths(problem, used.queries, "queries");
  require_lengths(problem, used.keys, "keys");
  std::vector<MaskGeometry> sequences;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    sequences.push_back(sequence_geometry(problem, length_of(used.queries, batch, problem.seq_q),
                                          length_of(used.keys, batch, problem.seq_kv)));
  }
  return sequences;
}

RowRange attended_keys(const MaskGeometry& sequence, std::int64_t query) {
  return query < sequence.seq_q ? sequence.keys_of_query(query) : RowRange{};
}

RowRange attending_queries(const MaskGeometry& sequence, std::int64_t key) {
  return key < sequence.seq_kv ? sequence.queries_of_key(key) : RowRange{};
}

}  // namespace attune
