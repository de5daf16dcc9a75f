#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "generator/problem/attention_problem.h"

namespace attune {

/// Lengths of packed sequences where no call says them, as `distribution` shares `rows` out among `sequences`: what is
/// timed. They sum to `rows`, some may be 0, and they depend on nothing else: two batches of them differ in nothing
/// that a draw at random decides. Those of several rows with the same `sequences` have the same order.
std::vector<std::int64_t> distributed_lengths(LengthDistribution distribution, std::int64_t rows,
                                              std::int64_t sequences);

/// Lengths that a text says, and how a problem of them is distributed.
struct NamedLengths {
  std::vector<std::int64_t> lengths;
  LengthDistribution distribution = LengthDistribution::log_uniform;  ///< the standard one of lengths one by one
  std::int64_t rows() const;                                          ///< their sum
};

inline constexpr const char* kLengthsForms =
    "77,0,130 for each one's, or loguniform:64x128-8192, equal:12x1024 or one-long:64x128-8192";

/// Whether a text is meant for parse_lengths(), right or wrong: it begins with a digit or a sign, or has a comma or a
/// colon.
bool names_lengths(std::string_view text);

///   77,0,130                  the rows of each sequence
///   equal:12x1024             12 of 1024 rows
///   loguniform:64x128-8192    64 from 128 to 8192 rows, whose logarithms lie evenly between
///   one-long:64x128-8192      one of 8192 rows among 63 of 128
/// Throws Error(invalid_argument) that says what is wrong: a number of rows below 0 or beyond int32, also of all
/// sequences together, no sequence, a word of no distribution.
NamedLengths parse_lengths(std::string_view text);

/// Packed sequences by the lengths of each in queries and in keys.
struct NamedSequences {
  NamedLengths queries, keys;
  bool with_pairs = false;  ///< whether their problem has tensors of pairs, of the longest one's size
  /// What they say of a field of their problem, by its key: sizes, and that they are packed.
  std::optional<std::int64_t> value_of(std::string_view key) const;
};

}  // namespace attune
