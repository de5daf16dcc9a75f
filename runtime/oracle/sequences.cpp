#include "runtime/oracle/sequences.h"

#include <algorithm>
#include <span>

namespace attune {
namespace {

std::int64_t length_of(std::span<const std::int32_t> lengths, std::int64_t batch, std::int64_t all) {
  return lengths.empty() ? all : std::clamp<std::int64_t>(lengths[static_cast<std::size_t>(batch)], 0, all);
}

}  // namespace

std::vector<MaskGeometry> sequences_of(const AttentionProblem& problem, const TermValues& terms) {
  const auto queries = terms.of<std::int32_t>(Operand::seqused_q), keys = terms.of<std::int32_t>(Operand::seqused_kv);
  std::vector<MaskGeometry> sequences;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    sequences.push_back(
        sequence_geometry(problem, length_of(queries, batch, problem.seq_q), length_of(keys, batch, problem.seq_kv)));
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
