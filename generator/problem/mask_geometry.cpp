#include "generator/problem/mask_geometry.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "generator/problem/sequence_lengths.h"
#include "generator/problem/window.h"
#include "generator/rounding.h"

namespace attune {
namespace {

constexpr int kSampledTiles = 64;
constexpr std::int64_t kSequencesCounted = 1 << 14;

// The sum of clamp(row + offset, 0, most) over rows 0 to count - 1.
std::int64_t sum_of_clamped(std::int64_t count, std::int64_t offset, std::int64_t most) {
  // First none, then one more each row, then all.
  const std::int64_t first = std::clamp<std::int64_t>(-offset, 0, count);
  const std::int64_t full = std::clamp<std::int64_t>(most - offset, first, count);
  const std::int64_t growing = full - first;
  std::int64_t sum = (count - full) * most;
  if (growing > 0) sum += growing * (first + offset) + growing * (growing - 1) / 2;
  return sum;
}

// some: the rows of the other side that any row of a tile meets; whole: those that all of them meet.
BlockRange blocks_of(RowRange some, RowRange whole, std::int64_t block, bool last_is_whole) {
  if (some.end <= some.begin) {
    const std::int64_t at = some.begin / block;
    return {at, at, at, at};
  }
  BlockRange blocks;
  blocks.begin = some.begin / block;
  blocks.end = ceil_div(some.end, block);
  blocks.unmasked_begin = std::clamp(ceil_div(whole.begin, block), blocks.begin, blocks.end);
  blocks.unmasked_end = std::clamp(last_is_whole ? blocks.end : whole.end / block, blocks.unmasked_begin, blocks.end);
  return blocks;
}

template <typename BlocksOfTile>
StepCount count_steps(std::int64_t tiles, const BlocksOfTile& blocks_of_tile) {
  const std::int64_t samples = std::min<std::int64_t>(tiles, kSampledTiles);
  const auto share = static_cast<double>(samples);
  StepCount steps;
  for (std::int64_t i = 0; i < samples; ++i) {
    const BlockRange blocks = blocks_of_tile(samples == 1 ? 0 : i * (tiles - 1) / (samples - 1));
    const auto all = static_cast<double>(blocks.all());
    steps.mean += all / share;
    steps.masked += static_cast<double>(blocks.masked()) / share;
    steps.longest = std::max(steps.longest, all);
    steps.shortest = i == 0 ? all : std::min(steps.shortest, all);
  }
  return steps;
}

}  // namespace

MaskGeometry::MaskGeometry(const AttentionProblem& problem)
    : seq_q(problem.seq_q), seq_kv(problem.seq_kv), first_diagonal(-kOpenDiagonal), last_diagonal(kOpenDiagonal) {
  switch (problem.mask) {
    case MaskKind::none:
      break;
    case MaskKind::causal:
      last_diagonal = problem.mask_offset;
      break;
    case MaskKind::window:
      first_diagonal = problem.first_offset;
      last_diagonal = problem.mask_offset;
      break;
  }
}

MaskGeometry sequence_geometry(const AttentionProblem& problem, std::int64_t queries, std::int64_t keys) {
  const MaskGeometry whole(problem);
  const std::int64_t moved = problem.lengths == Lengths::used ? (keys - queries) - (problem.seq_kv - problem.seq_q) : 0;
  return {queries, keys, whole.first_diagonal + moved, whole.last_diagonal + moved};
}

std::int64_t count_attended_pairs(const AttentionProblem& problem) {
  if (!problem.packed) return MaskGeometry(problem).attended_pairs();
  // A part of very many sequences stands for all.
  const std::int64_t count = std::min(problem.batch, kSequencesCounted);
  const auto lengths = [&](std::int64_t rows) {
    const auto share = static_cast<std::int64_t>(static_cast<double>(rows) * static_cast<double>(count) /
                                                 static_cast<double>(problem.batch));
    return distributed_lengths(problem.distribution, share, count);
  };
  std::vector<std::int64_t> queries = lengths(problem.seq_q), keys = lengths(problem.seq_kv);
  if (problem.has_longest_sequence()) {
    for (std::int64_t& length : queries) length = std::min(length, problem.pair_queries());
    for (std::int64_t& length : keys) length = std::min(length, problem.pair_keys());
  }
  double pairs = 0;
  for (std::size_t i = 0; i < queries.size(); ++i)
    pairs += static_cast<double>(sequence_geometry(problem, queries[i], keys[i]).attended_pairs());
  return static_cast<std::int64_t>(std::ceil(pairs / static_cast<double>(count)));
}

AttentionProblem with_sequence_lengths(const AttentionProblem& problem, std::int64_t queries, std::int64_t keys) {
  const MaskGeometry mask = sequence_geometry(problem, queries, keys);
  AttentionProblem apart = problem;
  apart.unpack();
  apart.seq_q = queries;
  apart.seq_kv = keys;
  apart.mask = MaskKind::none;
  apart.mask_offset = apart.first_offset = 0;
  hide_outside(mask.first_diagonal, mask.last_diagonal, &apart);
  return apart;
}

AttentionProblem with_equal_lengths(const AttentionProblem& problem) {
  if (!problem.packed) return problem;
  return with_sequence_lengths(problem, ceil_div(problem.seq_q, problem.batch),
                               ceil_div(problem.seq_kv, problem.batch));
}

RowRange MaskGeometry::keys_of_query(std::int64_t query) const {
  const auto clamped = [&](std::int64_t key) { return std::clamp<std::int64_t>(key, 0, seq_kv); };
  return {clamped(query + first_diagonal), clamped(query + last_diagonal + 1)};
}

RowRange MaskGeometry::queries_of_key(std::int64_t key) const {
  const auto clamped = [&](std::int64_t query) { return std::clamp<std::int64_t>(query, 0, seq_q); };
  return {clamped(key - last_diagonal), clamped(key - first_diagonal + 1)};
}

std::int64_t MaskGeometry::attended_pairs() const {
  return sum_of_clamped(seq_q, last_diagonal + 1, seq_kv) - sum_of_clamped(seq_q, first_diagonal, seq_kv);
}

std::int64_t MaskGeometry::most_queries() const {
  const auto clamped = [&](std::int64_t query) { return std::clamp<std::int64_t>(query, 0, seq_q); };
  return std::min(last_diagonal - first_diagonal + 1, clamped(seq_kv - first_diagonal) - clamped(-last_diagonal));
}

// A row's range begins and ends no earlier than that of the row before: a tile's first and last row say all.
BlockRange MaskGeometry::key_blocks(std::int64_t first, std::int64_t rows, std::int64_t block) const {
  const RowRange of_first = keys_of_query(first), of_last = keys_of_query(std::min(first + rows, seq_q) - 1);
  return blocks_of({of_first.begin, of_last.end}, {of_last.begin, of_first.end}, block, false);
}

BlockRange MaskGeometry::query_blocks(std::int64_t first, std::int64_t rows, std::int64_t block) const {
  const RowRange of_first = queries_of_key(first), of_last = queries_of_key(std::min(first + rows, seq_kv) - 1);
  return blocks_of({of_first.begin, of_last.end}, {of_last.begin, of_first.end}, block, of_first.end == seq_q);
}

StepCount MaskGeometry::key_steps(std::int64_t tile, std::int64_t block) const {
  return count_steps(ceil_div(seq_q, tile), [&](std::int64_t index) { return key_blocks(index * tile, tile, block); });
}

StepCount MaskGeometry::query_steps(std::int64_t tile, std::int64_t block) const {
  return count_steps(ceil_div(seq_kv, tile),
                     [&](std::int64_t index) { return query_blocks(index * tile, tile, block); });
}

bool hides_pairs(MaskKind mask) {
  switch (mask) {
    case MaskKind::none:
      return false;
    case MaskKind::causal:
    case MaskKind::window:
      return true;
  }
  return true;
}

bool hides_first_keys(MaskKind mask) {
  switch (mask) {
    case MaskKind::none:
    case MaskKind::causal:
      return false;
    case MaskKind::window:
      return true;
  }
  return true;
}

bool lengthens_tiles(MaskKind mask) {
  switch (mask) {
    case MaskKind::none:
    case MaskKind::window:  // but at the ends
      return false;
    case MaskKind::causal:
      return true;
  }
  return true;
}

AttentionProblem with_lengths(AttentionProblem problem, std::int64_t seq_q, std::int64_t seq_kv) {
  problem = simplest_mask(problem);
  const AttentionProblem given = problem;
  const bool bottom_right = problem.mask_offset == bottom_right_offset(problem);
  problem.seq_q = seq_q;
  problem.seq_kv = seq_kv;
  switch (problem.mask) {
    case MaskKind::none:
      break;
    case MaskKind::causal:
      problem.mask_offset =
          std::min(bottom_right ? bottom_right_offset(problem) : std::max(problem.mask_offset, -seq_q), seq_kv - 2);
      break;
    case MaskKind::window: {
      // Both sides go with the diagonal that is aligned bottom right, if the window holds it.
      const std::int64_t moved = bottom_right_offset(problem) - bottom_right_offset(given);
      const std::int64_t shift = holds_aligned_diagonal(given) ? moved : 0;
      const std::int64_t first = std::clamp(given.first_offset + shift, 2 - seq_q, seq_kv);
      const std::int64_t last =
          given.mask_offset == kOpenDiagonal ? kOpenDiagonal : std::clamp(given.mask_offset + shift, first, seq_kv);
      problem.mask = MaskKind::none;
      problem.mask_offset = problem.first_offset = 0;
      hide_outside(first, last, &problem);
      break;
    }
  }
  return problem;
}

}  // namespace attune
