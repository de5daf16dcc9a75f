#pragma once

#include <cstdint>

#include "generator/problem/attention_problem.h"

namespace attune {

/// Rows [begin, end) of a sequence; none if begin == end.
struct RowRange {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
  bool contains(std::int64_t row) const { return begin <= row && row < end; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

/// Blocks that a kernel streams past a tile, as it walks them: in [begin, end) lie all the pairs that are attended to,
/// and blocks of [unmasked_begin, unmasked_end) need no predicate. begin <= unmasked_begin <= unmasked_end <= end.
struct BlockRange {
  std::int64_t begin = 0, unmasked_begin = 0, unmasked_end = 0, end = 0;

  std::int64_t all() const { return end - begin; }
  std::int64_t masked() const { return all() - (unmasked_end - unmasked_begin); }
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

/// Steps (streamed blocks) of a tile, over all tiles of a head.
struct StepCount {
  double mean = 0, longest = 0, shortest = 0;
  double masked = 0;  ///< of the mean: those that need a predicate
};

/// Which pairs of a head are attended to: the one place that says what a mask means. A mask is a band of diagonals,
/// first_diagonal <= key - query <= last_diagonal; a side that it leaves open lies beyond the diagonals of any valid
/// problem (kOpenDiagonal). The constructor alone knows the kinds of masks; counts, ranges and steps follow from the
/// band, with a bound on the left as well as one on the right. A plain value.
struct MaskGeometry {
  std::int64_t seq_q = 0, seq_kv = 0;
  std::int64_t first_diagonal = 0, last_diagonal = 0;

  /// seq_q, seq_kv and the band of a problem, which validate() accepts.
  explicit MaskGeometry(const AttentionProblem& problem);
  /// first_diagonal <= last_diagonal.
  MaskGeometry(std::int64_t seq_q, std::int64_t seq_kv, std::int64_t first_diagonal, std::int64_t last_diagonal)
      : seq_q(seq_q), seq_kv(seq_kv), first_diagonal(first_diagonal), last_diagonal(last_diagonal) {}

  RowRange keys_of_query(std::int64_t query) const;
  RowRange queries_of_key(std::int64_t key) const;
  std::int64_t attended_pairs() const;  ///< of one head; exact
  std::int64_t most_queries() const;    ///< of a key: no fewer than see any

  /// Blocks of `block` keys past a tile of `rows` queries from `first` on (those that exist). A last block that the
  /// keys do not fill needs a predicate, lest scores of what is no key reach the softmax.
  BlockRange key_blocks(std::int64_t first, std::int64_t rows, std::int64_t block) const;
  /// Blocks of `block` queries past a tile of `rows` keys from `first` on. A last block that the queries do not fill
  /// needs no predicate for that: what is no query has gradients of zero.
  BlockRange query_blocks(std::int64_t first, std::int64_t rows, std::int64_t block) const;

  /// Steps of tiles of `tile` queries past blocks of `block` keys, counted on at most 64 tiles, evenly spread.
  StepCount key_steps(std::int64_t tile, std::int64_t block) const;
  /// Steps of tiles of keys past blocks of queries.
  StepCount query_steps(std::int64_t tile, std::int64_t block) const;
};

/// The mask of a sequence of `queries` and `keys` rows, in a problem with used lengths that says of sequences of all
/// rows what its mask is.
MaskGeometry sequence_geometry(const AttentionProblem& problem, std::int64_t queries, std::int64_t keys);

/// Attended (query, key) pairs of one head of a batch entry; exact, but of packed sequences, whose lengths a problem
/// does not know: the mean of those of distributed_lengths().
std::int64_t count_attended_pairs(const AttentionProblem& problem);

/// Whether any pair may be hidden, so that kernels of the mask hold a predicate.
bool hides_pairs(MaskKind mask);

/// Whether a query's keys may begin behind the first one, so that kernels of the mask hold a predicate on both sides.
bool hides_first_keys(MaskKind mask);

/// Whether later queries see more keys, so that tiles differ in length and their order decides what is left at the end.
bool lengthens_tiles(MaskKind mask);

/// The problem with other lengths and the same mask: what is aligned bottom right stays so, another offset is kept as
/// far as the lengths let it. A mask that hides a pair hides one of these lengths, too, so that the kernels are the
/// same.
AttentionProblem with_lengths(AttentionProblem problem, std::int64_t seq_q, std::int64_t seq_kv);

/// Packed sequences as others that lie apart, each of so many queries and keys, with the mask that packed ones of these
/// lengths have.
AttentionProblem with_sequence_lengths(const AttentionProblem& problem, std::int64_t queries, std::int64_t keys);

/// What packed sequences are rated as: as many of equal lengths, each in a batch entry of its own. Other problems stay
/// as they are.
AttentionProblem with_equal_lengths(const AttentionProblem& problem);

}  // namespace attune
