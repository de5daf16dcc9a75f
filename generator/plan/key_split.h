#pragma once

#include <algorithm>
#include <cstdint>

#include "generator/problem/attention_problem.h"

namespace attune {

inline constexpr int kMostKeyParts = 64;

/// Keys of a part, at least, where parts fill: reading them takes about as long as writing what the part gives.
constexpr int least_keys_of_part(int block_kv) { return std::max(128, 2 * block_kv); }

/// Into how many parts the keys of a tile of queries are split; a CTA works on each. A plain value of the config and
/// the device: how many parts a problem gets is a number that kernels take as an argument, so that one plan serves
/// keys that grow. Backward: into how many parts the queries of a tile of keys are split, a number of the config.
struct KeySplit {
  int parts = 1;  ///< kFillParts: as many as leave least of `slots` idle; kFixedParts: of `least_keys` keys each
  // Where `parts` is kFillParts, from here
  int slots = 1;               ///< CTAs (or clusters of them) that the device holds at once
  int tile_queries = 1;        ///< of a tile
  int tile_heads = 1;          ///< query heads of a tile
  int least_keys = 1;          ///< of a part, as far as a tile has so many; of fixed ones all that it has
  std::int64_t most_rows = 1;  ///< of all parts together: rows of results that the workspace holds

  bool is_split() const { return parts != 1; }
  /// At least 1 and, where they fill the device, at most kMostKeyParts. Some of them may have no keys.
  std::int32_t parts_of(const AttentionProblem& problem) const;

  friend bool operator==(const KeySplit&, const KeySplit&) = default;
};

}  // namespace attune
