#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attune {

/// A kernel template together with the instructions it is written for.
enum class KernelFamily {
  sm80,  ///< mma.sync, ldmatrix, cp.async: compute capability 8.0 and newer
};

/// In which order consecutive CTAs take tiles of queries.
enum class TileOrder {
  rows,            ///< all tiles of a head, then the next head: a head's K and V stay in L2
  rows_reversed,   ///< the same from the last tile to the first: under a causal mask the longest first
  heads,           ///< the same tile of every head, then the next tile
  heads_reversed,  ///< as heads, from the last tile to the first
};

/// Every choice that can be tuned and nothing that can be derived. A plain value with a canonical text form that
/// round-trips: the key in the database, the name in logs, the argument of --config.
struct KernelConfig {
  KernelFamily family = KernelFamily::sm80;
  int block_q = 128;  ///< queries of a CTA; each warp owns block_q / warps of them (16, 32, 48 or 64)
  int block_kv = 64;  ///< keys of one step
  int warps = 4;
  int stages = 2;  ///< tiles of K, and of V, held in shared memory
  bool q_in_registers =
      true;  ///< Q fragments stay in registers; otherwise they are read from shared memory at each step
  TileOrder tile_order = TileOrder::rows;
  int rescale_threshold =
      0;  ///< O is rescaled when the row maximum grew by more than this many powers of two (0: always)
  bool whole_tiles = false;  ///< lengths must be multiples of the tiles: no bounds checks
  int ctas_per_sm = 1;       ///< CTAs that must fit on an SM together: limits the registers of a thread

  friend bool operator==(const KernelConfig&, const KernelConfig&) = default;
};

/// Canonical text: "sm80 q128 kv64 w4 st2", then the words that differ from their default, in this order:
/// "qsmem", "order=rows-reversed|heads|heads-reversed", "rescale8", "whole", "cta2".
std::string canonical_text(const KernelConfig& config);

/// The inverse of canonical_text; the family comes first, other words in any order, omitted ones have their default.
/// Throws Error(invalid_argument) that names the word it does not understand and lists those it knows.
KernelConfig parse_config(std::string_view text);

std::string_view to_string(KernelFamily family);
std::string_view to_string(TileOrder order);

}  // namespace attune
