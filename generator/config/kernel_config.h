#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attune {

/// The first word of a config: for which instructions its kernels are written. Only families/ names its values.
enum class FamilyWord : unsigned char;

/// In which order consecutive CTAs take tiles: of queries, backward of keys.
enum class TileOrder {
  rows,            ///< all tiles of a head, then the next head: a head's K and V stay in L2
  rows_reversed,   ///< the same from the last tile to the first: under a causal mask the longest first
  heads,           ///< the same tile of every head, then the next tile
  heads_reversed,  ///< as heads, from the last tile to the first
  sections,        ///< backward: as heads, but section by section: heads whose Q, dO and sums of dQ stay in L2 together
  sections_reversed,  ///< as heads_reversed, but section by section: heads whose K and V stay in L2 (see l2_parts)
};

/// sm90: what runs beside the products of a warpgroup, apart from other warpgroups.
enum class Overlap {
  none,    ///< nothing: a block's scores, their softmax and the product with V follow each other
  within,  ///< the softmax of a block runs beside the product of the block before it
  across,  ///< as within, and that of a tile's first block beside the last product of the tile before it
};

/// sm90: how CTAs come by their tiles.
enum class Persistence {
  none,       ///< a CTA for each tile
  fixed,      ///< as many CTAs as fit; each takes its tiles at even distances, every second round backwards
  on_demand,  ///< as many CTAs as fit; each takes the next tile when it needs one
};

/// sm90: how the consumer warpgroups of a CTA take the tensor cores.
enum class WarpgroupOrder {
  free,       ///< as they come
  turns,      ///< they issue their products in turns
  ping_pong,  ///< one has the tensor cores until its products are done, while the others work on their softmax
};

/// Backward: how dQ, to which all tiles of keys contribute, is summed.
enum class QueryGradient {
  own,      ///< by a kernel of its own over tiles of queries, which computes S and dP again
  atomic,   ///< the kernel of key tiles adds its parts in fp32 as they come: unordered
  ordered,  ///< as atomic, but the tiles that see a block of queries take turns
};

/// Every choice that can be tuned and nothing that can be derived. A plain value with a canonical text form that
/// round-trips: the key in the database, the name in logs, the argument of --config.
struct KernelConfig {
  FamilyWord family{};
  /// Queries of a tile. sm80: each warp owns block_q / warps of them (16, 32, 48 or 64); sm90: each consumer warpgroup
  /// owns 64.
  int block_q = 128;
  int block_kv = 64;  ///< keys of one step
  int warps = 4;      ///< sm80 only
  int stages = 2;     ///< tiles of K, and of V (but see v_stages), held in shared memory
  /// Q fragments stay in registers; otherwise they are read from shared memory at each step. sm90's default is false.
  bool q_in_registers = true;
  TileOrder tile_order = TileOrder::rows;
  /// sections_reversed: K and V of a section fill one of so many parts of the L2; Q, O and keys of the next section
  /// pass through the others.
  int l2_parts = 2;
  int rescale_threshold =
      0;  ///< O is rescaled when the row maximum grew by more than this many powers of two (0: always)
  bool whole_tiles = false;  ///< lengths must be multiples of the tiles: no bounds checks
  int ctas_per_sm = 1;       ///< CTAs that must fit on an SM together: limits the registers of a thread
  // sm90 only, from here
  int q_stages = 1;  ///< tiles of Q held in shared memory: with 2 a persistent CTA loads the next one's ahead
  /// Unmasked blocks take no maximum: a reference that is good enough is kept. bf16 only, whose exponents reach as far
  /// as fp32's; rescale_threshold has no meaning then and is 0.
  bool without_maximum = false;
  WarpgroupOrder warpgroup_order = WarpgroupOrder::free;
  Overlap overlap = Overlap::none;
  Persistence persistence = Persistence::none;
  int v_stages = 0;               ///< tiles of V, where they are not as many as of K; 0: as many
  bool p_in_shared = false;       ///< P goes to the product with V through shared memory, not from registers
  int cluster = 1;                ///< CTAs that take neighbouring tiles of one head and load each K and V once, for all
  bool packed_heads = false;      ///< the query heads that share K and V lie in one tile, as its rows
  int emulated_exponentials = 0;  ///< of 16, computed by a polynomial instead of the special function unit
  int producer_registers = 0;  ///< of a thread of the producer; the consumers have the others. 0: the fewest it needs
  // backward only, from here
  /// sm80: warps that share the same keys of a tile. Each computes S and dP of a part of the queries, and dK and dV of
  /// a part of the columns.
  int split = 1;
  /// sm80: each query head of a group has tiles of keys of its own, so that there are more CTAs; dK and dV are summed
  /// over the group in fp32 in the workspace: in turns, or, where dq is atomic, as they come. Otherwise a CTA walks
  /// through all query heads of the group.
  bool heads_apart = false;
  /// sm80, of warps that share keys: a step's product for dQ, and its adds, come before those of dK and dV, which the
  /// adds then drain beside; otherwise after them.
  bool dq_first = false;
  QueryGradient dq = QueryGradient::own;

  friend bool operator==(const KernelConfig&, const KernelConfig&) = default;
};

/// A config with the defaults of a family's fields: what a text omits.
KernelConfig default_fields(FamilyWord family);

/// Canonical text: "sm80 q128 kv64 w4 st2" or "sm90 q128 kv64 st2", then the words that differ from their default, in
/// the order of config_fields().
std::string canonical_text(const KernelConfig& config);

/// The inverse of canonical_text; the family comes first, other words in any order, omitted ones have their default.
/// Throws Error(invalid_argument) that names the word it does not understand and lists those it knows.
KernelConfig parse_config(std::string_view text);

std::string_view to_string(FamilyWord family);

constexpr std::string_view to_string(TileOrder order) {
  switch (order) {
    case TileOrder::rows:
      return "rows";
    case TileOrder::rows_reversed:
      return "rows-reversed";
    case TileOrder::heads:
      return "heads";
    case TileOrder::heads_reversed:
      return "heads-reversed";
    case TileOrder::sections:
      return "sections";
    case TileOrder::sections_reversed:
      return "sections-reversed";
  }
  return "";
}

constexpr std::string_view to_string(WarpgroupOrder order) {
  switch (order) {
    case WarpgroupOrder::free:
      return "free";
    case WarpgroupOrder::turns:
      return "turns";
    case WarpgroupOrder::ping_pong:
      return "pingpong";
  }
  return "";
}

constexpr std::string_view to_string(Overlap overlap) {
  switch (overlap) {
    case Overlap::none:
      return "none";
    case Overlap::within:
      return "within";
    case Overlap::across:
      return "across";
  }
  return "";
}

constexpr std::string_view to_string(Persistence persistence) {
  switch (persistence) {
    case Persistence::none:
      return "none";
    case Persistence::fixed:
      return "fixed";
    case Persistence::on_demand:
      return "on-demand";
  }
  return "";
}

constexpr std::string_view to_string(QueryGradient dq) {
  switch (dq) {
    case QueryGradient::own:
      return "own";
    case QueryGradient::atomic:
      return "atomic";
    case QueryGradient::ordered:
      return "ordered";
  }
  return "";
}

}  // namespace attune
