#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attune {

/// The first word of a config: for which instructions its kernels are written. Only families/ names its values.
enum class FamilyWord : unsigned char;

/// In which order consecutive CTAs take tiles: of queries, backward of keys.
enum class TileOrder {
  head_major,           ///< all tiles of a head, then the next head: a head's K and V stay in L2
  head_major_reversed,  ///< the same from the last tile to the first: under a causal mask the longest first
  tile_major,           ///< the same tile of every head, then the next tile
  tile_major_reversed,  ///< the same from the last tile to the first
  /// Backward: tile_major within a section, section by section; with dq ordered tile_major_reversed. The heads of a
  /// section have Q, dO and sums of dQ that fit in a part of L2 together (see l2_parts); of heads of a group, through
  /// which a tile walks, one counts. On Hopper, without tickets, they have no more tiles than run at once.
  l2_sections,
  /// tile_major_reversed within a section, whose heads have K and V that fit in a part of L2 together.
  l2_sections_reversed,
};

/// sm90: what runs beside the products of a warpgroup, apart from other warpgroups.
enum class Overlap {
  none,  ///< nothing: a block's scores, their softmax and the product with V follow each other
  /// The softmax of a block runs beside the product of the block before it; backward also dS beside that for dV.
  within,
  across,  ///< as within, and that of a tile's first block beside the last product of the tile before it
  /// Backward: products follow each other without a pause where they can; only dS is computed beside one, that for dV.
  queued,
};

/// sm90: how tiles are assigned to CTAs.
enum class TileScheduler {
  single,  ///< one tile per CTA
  /// As many CTAs as fit; each takes its tiles at even distances, every second round backwards.
  static_persistent,
  dynamic_persistent,  ///< as many CTAs as fit; each takes the next tile when it needs one
};

/// sm90: how the consumer warpgroups of a CTA take the tensor cores.
enum class WarpgroupOrder {
  free,       ///< as they come
  ordered,    ///< one after the other, in a fixed order
  ping_pong,  ///< one has the tensor cores until its products are done, while the others work on their softmax
};

/// Backward: how dQ, to which all tiles of keys contribute, is summed.
enum class DqAccumulation {
  separate_kernel,  ///< a kernel over tiles of queries computes S and dP again
  atomic,           ///< the kernel of key tiles adds its parts in fp32 as they come: unordered
  ordered,          ///< as atomic, but the tiles that see a block of queries add in a fixed order, by tickets
};

/// sm90's backward: which warpgroups compute dQ.
enum class DqWarpgroups {
  own,      ///< one of its own, which loads besides
  softmax,  ///< those of P and dS, each a part of dQ, transposed; the other one only loads
};

/// sm90's backward: how the warpgroups that compute dQ add it to its sums in global memory.
enum class DqAdds {
  red,   ///< each thread its accumulators, 16 bytes at a time
  bulk,  ///< through shared memory, from where each warp adds its part by one bulk reduction
};

/// KernelConfig::key_parts: as many as fill the device, which each problem's lengths and heads decide; or parts of a
/// fixed number of keys, from the first key on.
inline constexpr int kFillParts = 0, kFixedParts = -1;

/// The largest KernelConfig::l2_parts.
inline constexpr int kMostL2Parts = 16;

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
  TileOrder tile_order = TileOrder::head_major;
  /// Sections: what the heads of one keep in L2 fills at most one of so many parts of it; the rest, and the next
  /// section's, passes through the others.
  int l2_parts = 2;
  /// O is rescaled when the row maximum grew by more than this many powers of two (0: always). At most 8: P of a key
  /// that outweighs all others by more would be rounded where PyTorch's is 1, and P of fp16 ends at 2^16.
  int rescale_threshold = 0;
  bool even_tiles = false;  ///< lengths must be multiples of the tiles: no bounds checks
  int ctas_per_sm = 1;      ///< CTAs that must fit on an SM together: limits the registers of a thread
  /// Forward: parts of a tile's keys, each worked on by a CTA of its own; with several a second kernel combines their
  /// results, which lie in the workspace in fp32. kFillParts: as many as the problem needs to fill the device.
  /// kFixedParts: of an invariant problem, which has no other parts (generator/families/invariance.h).
  int key_parts = 1;
  /// Forward: blocks of keys after which sums over a row leave the accumulators of the tensor cores, which truncate,
  /// and are added up in fp32 that rounds: sm80 1, in registers; sm90 any number, in the workspace. 0: never.
  int promotion_blocks = 0;
  // sm90 only, from here
  int q_stages = 1;  ///< tiles of Q held in shared memory: with 2 a persistent CTA loads the next one's ahead
  WarpgroupOrder warpgroup_order = WarpgroupOrder::free;
  Overlap overlap = Overlap::none;
  TileScheduler tile_scheduler = TileScheduler::single;
  int v_stages = 0;  ///< tiles of V, where they are not as many as of K; 0: as many
  /// Tiles of each tensor of pairs, of a tile's rows and a block's, held in shared memory; backward as many as of Q,
  /// with which they come. 0: each thread loads the elements that it needs from global memory.
  int pair_stages = 0;
  /// With pair_stages: tensors of pairs whose rows no tensor map describes are copied before, to rows of which one
  /// does. Otherwise each warp loads what it needs of these into its part of a tile.
  bool copied_pairs = false;
  /// Blocks of queries and keys of which the attention mask shows no pair are passed over: a kernel finds them before.
  /// Otherwise all blocks are worked on that the mask's diagonals show.
  bool visible_blocks = false;
  bool p_in_shared = false;  ///< P goes to the product with V through shared memory, not from registers
  int cluster = 1;           ///< CTAs that take neighbouring tiles of one head and load each K and V once, for all
  /// A tile walks through its keys from the first block up, otherwise from the last one down.
  bool ascending_keys = false;
  bool pack_gqa = false;          ///< the query heads that share K and V lie in one tile, as its rows
  int emulated_exponentials = 0;  ///< of 16, computed by a polynomial instead of the special function unit
  int producer_registers = 0;  ///< of a thread of the producer; the consumers have the others. 0: the fewest it needs
  // backward only, from here
  /// sm80: warps that share the same keys of a tile. Each computes S and dP of a part of the queries, and dK and dV of
  /// a part of the columns.
  int query_warps = 1;
  /// Each query head of a group has tiles of keys of its own, so that there are more CTAs; dK and dV are summed
  /// over the group in fp32 in the workspace: in a fixed order, or, where dq is atomic, as they come. Otherwise a CTA
  /// walks through all query heads of the group.
  bool kv_grad_per_query_head = false;
  /// Parts of the queries of a head, each of which has tiles of keys of its own, so that dK and dV of a tile are sums
  /// over fewer queries; with several, query heads have theirs apart, and all is summed as kv_grad_per_query_head says.
  int query_parts = 1;
  /// sm80, of warps that share keys: a step's product for dQ, and its adds, come before those of dK and dV, which the
  /// adds then drain beside; otherwise after them.
  bool dq_first = false;
  DqAccumulation dq = DqAccumulation::separate_kernel;
  // sm90's backward only, from here. `stages` are those of Q.
  int do_stages = 0;    ///< blocks of dO held in shared memory; 0: as many as of Q
  int ds_stages = 2;    ///< blocks of dS on their way to the warpgroup that computes dQ
  int dq_columns = 64;  ///< columns of dQ that one product computes, for 64 queries
  /// The tile that adds last to dQ of a head converts it, while its sums are in L2; else another kernel converts all.
  bool fused_convert = false;
  /// The warpgroup that computes dQ stores dS as the gradient of a bias that repeats along nothing; else a kernel of
  /// its own computes that gradient.
  bool fused_dbias = false;
  /// A lane of a loading warp looks again and again whether a buffer of Q or dO is free, and fills it at once;
  /// otherwise once a block, for a block ahead.
  bool polled_loads = false;
  /// Registers of a thread of the warpgroup that computes dQ; others have the rest. 0: the fewest it needs.
  int dq_registers = 0;
  /// Two warpgroups share the same 64 keys: one computes S, P and dV, the other dP, dS and dK. Wide heads need it,
  /// whose dK and dV together leave no registers.
  bool split_dkdv = false;
  /// With two warpgroups that share keys: P passes through the buffer that dS of the block takes afterwards, which
  /// leaves shared memory for another stage, but waits for that buffer.
  bool p_in_ds = false;
  /// With split_dkdv: dK's product of a block is issued before dS is handed over to the warpgroup that computes dQ, and
  /// runs beside that.
  bool dk_first = false;
  DqWarpgroups dq_by = DqWarpgroups::own;
  DqAdds dq_adds = DqAdds::red;
  /// With dq ordered: blocks of queries that share a ticket. A tile of keys waits before the first of them for the
  /// tiles behind it, and lets the next tile add when it has done with the last.
  int ticket_blocks = 1;
  /// Sixteens of a block's queries whose LSE and delta are read while the products run whose results they meet: half of
  /// them of LSE, rounded down, the others of delta; with split_dkdv all of delta. Otherwise each is read when it is
  /// used.
  int early_statistics = 0;

  friend bool operator==(const KernelConfig&, const KernelConfig&) = default;
};

/// A config with the defaults of a family's fields: what a text omits.
KernelConfig default_fields(FamilyWord family);

/// Canonical text: "sm80 q128 kv64 w4 st2" or "sm90 q128 kv64 st2", then the words that differ from their default, in
/// the order of config_fields().
std::string canonical_text(const KernelConfig& config);

/// The inverse of canonical_text; the family comes first, other words in any order, omitted ones have their default.
/// Words of version 0.1 that have other names since are understood too (see current_word()).
/// Throws Error(invalid_argument) that names the word it does not understand and lists those it knows.
KernelConfig parse_config(std::string_view text);

std::string_view to_string(FamilyWord family);

constexpr std::string_view to_string(TileOrder order) {
  switch (order) {
    case TileOrder::head_major:
      return "head-major";
    case TileOrder::head_major_reversed:
      return "head-major-reversed";
    case TileOrder::tile_major:
      return "tile-major";
    case TileOrder::tile_major_reversed:
      return "tile-major-reversed";
    case TileOrder::l2_sections:
      return "l2-sections";
    case TileOrder::l2_sections_reversed:
      return "l2-sections-reversed";
  }
  return "";
}

constexpr std::string_view to_string(WarpgroupOrder order) {
  switch (order) {
    case WarpgroupOrder::free:
      return "free";
    case WarpgroupOrder::ordered:
      return "ordered";
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
    case Overlap::queued:
      return "queued";
  }
  return "";
}

constexpr std::string_view to_string(TileScheduler scheduler) {
  switch (scheduler) {
    case TileScheduler::single:
      return "single";
    case TileScheduler::static_persistent:
      return "static-persistent";
    case TileScheduler::dynamic_persistent:
      return "dynamic-persistent";
  }
  return "";
}

constexpr std::string_view to_string(DqAccumulation dq) {
  switch (dq) {
    case DqAccumulation::separate_kernel:
      return "separate-kernel";
    case DqAccumulation::atomic:
      return "atomic";
    case DqAccumulation::ordered:
      return "ordered";
  }
  return "";
}

constexpr std::string_view to_string(DqWarpgroups warpgroups) {
  switch (warpgroups) {
    case DqWarpgroups::own:
      return "own";
    case DqWarpgroups::softmax:
      return "softmax";
  }
  return "";
}

constexpr std::string_view to_string(DqAdds adds) {
  switch (adds) {
    case DqAdds::red:
      return "red";
    case DqAdds::bulk:
      return "bulk";
  }
  return "";
}

}  // namespace attune
