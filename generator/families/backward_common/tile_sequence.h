#pragma once

#include <cstdint>

#include "generator/problem/attention_problem.h"

namespace attune {

/// Tiles in the order in which CTAs take them.
struct TileSequence {
  std::int64_t tiles = 1, heads = 1;  ///< tiles of a head
  std::int64_t section_heads = 1;     ///< whose tiles alternate
  std::int64_t parts = 1;             ///< into which what passes by a tile is split; each counts as a head of its own
  bool last_first = false;            ///< of a head's tiles
  bool in_rounds = false;             ///< each CTA takes one tile of each round, every second one backwards

  std::int64_t tile(std::int64_t number) const;  ///< of its head
};

/// What a tile keeps and what passes by it, in rows: keys and blocks of queries (of_keys), or the other way round.
struct TileRowCounts {
  bool of_keys = false;
  int resident = 0, streamed = 0;
};

/// Steps that the longest of `slots` works beyond the mean of all: each takes the next tile when it has done with one,
/// or its tile of the next round. `around`: steps' worth of a tile's beginning and end. Of many tiles only the last are
/// looked at: of rounds more, since the same slots may get long tiles again and again.
double uneven_steps(const AttentionProblem& problem, const TileRowCounts& rows, const TileSequence& sequence,
                    std::int64_t slots, double around);

}  // namespace attune
