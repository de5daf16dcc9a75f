#include "runtime/oracle/sequences.h"

#include <algorithm>
#include <span>

#include "generator/problem/sequence_lengths.h"

namespace attune {
namespace {

std::int64_t length_of(std::span<const std::int32_t> lengths, std::int64_t batch, std::int64_t all) {
  return lengths.empty() ? all : std::clamp<std::int64_t>(lengths[static_cast<std::size_t>(batch)], 0, all);
}

// The rows that count where tensors of pairs have elements for `most` of those of a packed sequence.
std::int64_t rows_that_count(const AttentionProblem& problem, std::int64_t most, std::int64_t rows) {
  return problem.has_longest_sequence() ? std::min(most, rows) : rows;
}

// What the sequence `batch` has in a tensor of pairs, with elements of so many bytes, as a problem of its own,
// whose rows are all that are stored. Those for which there are no elements do not count, and are 0.
std::vector<std::byte> pairs_of_sequence(const AttentionProblem& problem, Operand operand, std::int64_t batch,
                                         const AttentionProblem& alone, std::span<const std::byte> elements) {
  const OperandShape all = operand_shape(problem, operand), of_alone = operand_shape(alone, operand);
  const auto bytes = static_cast<std::int64_t>(size_of(all.element));
  const std::int64_t first_plane = all.batch > 1 ? batch * all.heads : 0;
  std::vector<std::byte> pairs(static_cast<std::size_t>(of_alone.elements() * bytes));
  for (std::int64_t row = 0; row < of_alone.heads * of_alone.rows; ++row) {
    const std::int64_t head = row / of_alone.rows, query = row % of_alone.rows;
    if (query >= all.rows) continue;
    std::copy_n(elements.begin() + ((first_plane + head) * all.rows + query) * all.columns * bytes,
                std::min(all.columns, of_alone.columns) * bytes, pairs.begin() + row * of_alone.columns * bytes);
  }
  return pairs;
}

std::int64_t only_length(const TermValues& terms, Operand operand) { return terms.of<std::int32_t>(operand)[0]; }

}  // namespace

std::vector<MaskGeometry> sequences_of(const AttentionProblem& problem, const TermValues& terms) {
  const auto queries = terms.of<std::int32_t>(Operand::seqused_q), keys = terms.of<std::int32_t>(Operand::seqused_kv);
  std::vector<MaskGeometry> sequences;
  if (problem.packed && terms.bytes(Operand::cu_seqlens_q).empty()) {
    const std::vector<std::int64_t> rows = distributed_lengths(problem.distribution, problem.seq_q, problem.batch),
                                    columns = distributed_lengths(problem.distribution, problem.seq_kv, problem.batch);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      sequences.push_back(sequence_geometry(problem, rows_that_count(problem, problem.pair_queries(), rows[i]),
                                            rows_that_count(problem, problem.pair_keys(), columns[i])));
    }
    return sequences;
  }
  if (problem.packed) {
    for (const PackedSequence& sequence : packed_sequences_of(problem, terms)) {
      const std::int64_t of_queries = only_length(sequence.terms, Operand::seqused_q),
                         of_keys = only_length(sequence.terms, Operand::seqused_kv);
      sequences.push_back(sequence_geometry(problem, of_queries, of_keys));
    }
    return sequences;
  }
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    sequences.push_back(
        sequence_geometry(problem, length_of(queries, batch, problem.seq_q), length_of(keys, batch, problem.seq_kv)));
  }
  return sequences;
}

std::vector<PackedSequence> packed_sequences_of(const AttentionProblem& problem, const TermValues& terms) {
  const auto of_queries = terms.of<std::int32_t>(Operand::cu_seqlens_q),
             of_keys = terms.of<std::int32_t>(Operand::cu_seqlens_kv);
  const auto queries = terms.of<std::int32_t>(Operand::seqused_q), keys = terms.of<std::int32_t>(Operand::seqused_kv);
  const auto row = [](std::span<const std::int32_t> begins, std::int64_t batch, std::int64_t all) {
    return std::clamp<std::int64_t>(begins[static_cast<std::size_t>(batch)], 0, all);
  };
  std::vector<PackedSequence> sequences;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    PackedSequence sequence;
    sequence.first_query = row(of_queries, batch, problem.seq_q);
    sequence.first_key = row(of_keys, batch, problem.seq_kv);
    const auto between = [](std::int64_t begin, std::int64_t end) { return std::max<std::int64_t>(0, end - begin); };
    const std::int64_t end_of_queries = row(of_queries, batch + 1, problem.seq_q),
                       end_of_keys = row(of_keys, batch + 1, problem.seq_kv);
    const bool is_last = batch == problem.batch - 1;
    sequence.stored_queries = between(sequence.first_query, is_last ? problem.seq_q : end_of_queries);
    sequence.stored_keys = between(sequence.first_key, is_last ? problem.seq_kv : end_of_keys);
    const std::int64_t in_queries = between(sequence.first_query, end_of_queries),
                       in_keys = between(sequence.first_key, end_of_keys);
    const std::int64_t used_queries =
                           length_of(queries, batch, rows_that_count(problem, problem.pair_queries(), in_queries)),
                       used_keys = length_of(keys, batch, rows_that_count(problem, problem.pair_keys(), in_keys));
    const MaskGeometry mask = sequence_geometry(problem, used_queries, used_keys);

    AttentionProblem& alone = sequence.problem = problem;
    alone.batch = 1;
    alone.unpack();
    alone.layout = Layout::bhsd;
    alone.seq_q = std::max<std::int64_t>(1, sequence.stored_queries);
    alone.seq_kv = std::max<std::int64_t>(1, sequence.stored_keys);
    alone.lengths = Lengths::used_top_left;  // the mask is that of the rows that count
    alone.mask = MaskKind::none;
    alone.mask_offset = alone.first_offset = 0;
    hide_outside(mask.first_diagonal, mask.last_diagonal, &alone);
    alone = simplest_mask(alone);
    const auto one = [](std::int64_t length) { return std::vector{static_cast<std::int32_t>(length)}; };
    sequence.terms.set(Operand::seqused_q, one(used_queries));
    sequence.terms.set(Operand::seqused_kv, one(used_keys));
    if (problem.sink) sequence.terms.set(Operand::sinks, terms.of<float>(Operand::sinks));
    if (problem.alibi) {
      const std::span<const float> slopes = terms.of<float>(Operand::alibi_slopes);
      sequence.terms.set(Operand::alibi_slopes, slopes.subspan(static_cast<std::size_t>(batch * problem.heads_q),
                                                               static_cast<std::size_t>(problem.heads_q)));
    }
    if (problem.dropout != 0) {
      sequence.terms.set(Operand::dropout_state, terms.of<std::int64_t>(Operand::dropout_state));
      sequence.terms.sequences_before = batch;
    }
    for (const Operand operand : term_inputs_of(problem)) {
      if (!is_of_pairs(operand)) continue;
      sequence.terms.set(operand, pairs_of_sequence(problem, operand, batch, alone, terms.bytes(operand)));
    }
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

std::vector<std::uint16_t> rows_of(const AttentionProblem& problem, std::span<const std::uint16_t> elements,
                                   Operand operand, std::int64_t first, std::int64_t count) {
  const OperandShape all = operand_shape(problem, operand);
  const TensorStrides from = packed_strides(problem, operand);
  std::vector<std::uint16_t> rows;
  for (std::int64_t head = 0; head < all.heads; ++head) {
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t column = 0; column < all.columns; ++column) {
        const bool exists = first + row < all.rows;
        const auto at = static_cast<std::size_t>(head * from.head + (first + row) * from.row + column);
        rows.push_back(exists ? elements[at] : std::uint16_t{0});
      }
    }
  }
  return rows;
}

RowRange attended_keys(const MaskGeometry& sequence, std::int64_t query) {
  return query < sequence.seq_q ? sequence.keys_of_query(query) : RowRange{};
}

RowRange attending_queries(const MaskGeometry& sequence, std::int64_t key) {
  return key < sequence.seq_kv ? sequence.queries_of_key(key) : RowRange{};
}

}  // namespace attune
