// Attention forward on Hopper (wgmma, TMA, mbarriers), for tiles of queries:
//
//   for each block of keys:                           S = Q Kᵀ, masked        m' = max(m, rowmax S)
//                                                     P = exp2(c S - c m')    l = l·exp2(c m - c m') + rowsum P
//                                                     O = O·exp2(c m - c m') + P V
//   O = O / l,   LSE = ${unit}·m + ln l,   c = ${unit}·log2(e)
//% if capped
//
// Scores are capped: S = tanh(scale / softcap·Q Kᵀ), before the mask.
//% end
//% if added
//
// S = ${scaled}·S${added_words}, before the mask${added_note}.
//% end
//% if attention_mask
//
// A query attends to the keys for which its attention mask is true, of those that it sees.
//% end
//% if visible_blocks
//
// Blocks of keys are passed over where the attention mask shows a tile's rows none: another kernel has found them.
//% end
//% if sink
//
// The sink of a row's head counts in l beside its keys, and has no value.
//% end
//% if dropout
//
// What dropout keeps of P goes into O, divided by the share of it; l and LSE have all.
//% end
//% if short_sequences
//
// A sequence has as many rows as `seqused_q` and `seqused_kv` say, of those that ${sequence_rows}.
//% end
//
// Warpgroup 0 is the producer: one thread of it copies tiles of Q, K and V by TMA${pair_words}${finder_words}. Each of the others owns 64 queries of the tile; their S and
// O stay in registers, P too or in shared memory.
//% if packed
//
// The ${group} query heads that share K and V lie in a tile together: row r of the tiles is position r / kGroup of head r % kGroup of them.
//% end
//% if split
//
// The keys of a tile are split into args.key_parts parts, which count as tiles. What a part gives its rows is combined by another kernel.
//% end
//% if invariant
//
// Bits of a row depend on no size: each part of kPartBlocks blocks of keys is summed as if it were alone${parts_meet}.
//% end
//% if promoted
//
// Sums over long rows are promoted: after every kPromotionBlocks blocks O leaves the accumulators and is added up in the workspace.
//% end
//% if clustered
//
// The CTAs of a cluster take neighbouring tiles of one head. Each loads a part of the rows of every tile of K and V, for all of them.
//% end
//
// shared memory, bytes; a panel holds kPanelColumns columns of all rows of its tile:
//% for shared_buffers
//   ${shared_buffers.offset}  ${shared_buffers.picture}
//% end

//% include primitives/wgmma

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDimQk = ${head_dim_qk}, kHeadDimV = ${head_dim_v};  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = ${element_bytes};
constexpr i32 kBlockQ = ${block_q}, kBlockKv = ${block_kv}, kConsumers = ${consumers};
constexpr i32 kStages = ${stages}, kVStages = ${v_stages}, kQStages = ${q_stages};  // tiles of K, of V, of Q
constexpr bool kEvenTiles = ${even_tiles};      // lengths are multiples of the tiles
constexpr bool kPartialBlocks = ${partial_blocks};   // whether any block can need a mask
constexpr bool kOrderedWarpgroups = ${ordered_warpgroups};       // whether warpgroups issue their products in a fixed order
constexpr float kRescaleThreshold = ${rescale_threshold};   // in powers of two; 0: rescale at every block
constexpr float kHeadroom = ${headroom};   // powers of two by which P is smaller than row_max says, so that it never exceeds 1; 0: no room below
constexpr i32 kProducerRegisters = ${producer_registers}, kConsumerRegisters = ${consumer_registers};  // 0: as they are at launch
constexpr i32 kCtasPerSm = ${ctas_per_sm}, kCluster = ${cluster};  // CTAs
//% if promoted
constexpr i32 kPromotionBlocks = ${promotion_blocks};   // of keys, after which sums leave the tensor cores
//% end
//% if invariant
constexpr i32 kPartBlocks = ${part_blocks};   // of keys, from a multiple of as many on
//% end
//% if packed
constexpr i32 kGroup = ${group};                  // query heads in a tile: a position in the sequence has as many rows
//% end

constexpr i32 kWarpgroup = 128;                  // threads
constexpr i32 kThreads = (kConsumers + 1) * kWarpgroup;
constexpr i32 kPanelColumns = ${panel_columns}, kPanels = ${panels};
constexpr u32 kPanelBytes = kElementBytes * kPanelColumns;  // of a row
constexpr u32 kQPanelStride = kBlockQ * kPanelBytes, kKvPanelStride = kBlockKv * kPanelBytes;
constexpr u32 kQTileBytes = kPanels * kQPanelStride, kKvTileBytes = kPanels * kKvPanelStride;
//% for shared_offsets
constexpr u32 ${shared_offsets.name} = ${shared_offsets.offset};
//% end
constexpr i32 kDimSteps = (kHeadDimQk + 15) / 16;  // k16 steps of Q Kᵀ; columns beyond the head dim are zeros
constexpr i32 kKeySteps = kBlockKv / 16;         // k16 steps of P V
static_assert(kBlockQ == 64 * kConsumers && kBlockKv % 16 == 0 && kHeadDimV % 8 == 0 && kPanels * kPanelColumns >= 16 * kDimSteps);
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles lie alike
static_assert(kKOffset >= kQOffset + kQStages * kQTileBytes && kVOffset >= kKOffset + kStages * kKvTileBytes);
static_assert(kBarrierOffset >= kVOffset + kVStages * kKvTileBytes);

// A thread's accumulators: element 4 n + i lies in row lane / 4 + 8 (i / 2) of its warp's 16 rows, in column 8 n + 2 (lane % 4) + i % 2.
using ScoreFragments = float[kBlockKv / 2];
using OutputFragments = float[kHeadDimV / 2];

//% include wgmma/matrix_descriptor
//% include tile/pack_elements
//% include wgmma/transpose_in_quad
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% if score_terms
//% include attention/score_terms
//% end
//% include attention/key_blocks
//% if split
//% include attention/key_part
//% end
//% include attention/score_${score}
//% if dropout
//% include attention/dropout_of_queries
//% end
//% include attention/kv_source_${kv_source}
//% if visible_blocks
//% include attention/visible_blocks
//% end
//% if pair_tiles
//% include wgmma/pair_tiles
//% end

// Named barriers, one for each consumer warpgroup, from these on.
constexpr u32 kOrder = 1, kProbabilities = kOrder + kConsumers;

struct TileIndex {
  i32 tile, batch_head;
};
//% include schedule/tile_order_${tile_order}

//% if packed_sequences
//% include attention/packed_tile
//% include schedule/tile_record

//% end
//% if pair_tensors
//% include attention/head_of_batch

//% end
struct QueryTile {
  Sequence sequence;
  i32 head, head_kv;    // its first query head
  i32 first_row, rows;  // rows that exist
  KeyBlocks blocks;     // that any of its rows attends to
//% if visible_blocks
  VisibleBlocks visible;  // of these
//% end
//% if split
  KeyPart key_part;     // whose blocks these are
//% end

//% if packed_sequences
  // record: where what the tile is has been left.
  __device__ __forceinline__ QueryTile(const Arguments& args, i32 record) : QueryTile(args, load_tile_record(static_cast<u32>(record))) {}
  __device__ __forceinline__ QueryTile(const Arguments& args, const PackedTile& placed) {
//% if split
    key_part = KeyPart(args, placed.index.tile);
    const TileIndex index = {key_part.tile, placed.index.batch_head};
//% else
    const TileIndex index = placed.index;
//% end
//% else
  __device__ __forceinline__ QueryTile(const Arguments& args, i32 number) {
//% if split
    key_part = KeyPart(args, number);
    const TileIndex index = tile_index(args, key_part.tile);
//% else
    const TileIndex index = tile_index(args, number);
//% end
//% end
//% include attention/heads_of_tile
//% if clustered
    // Each CTA takes one tile of a pair and walks the blocks of both. The second tile may have no rows.
    const i32 first = index.tile * kCluster * kBlockQ, all = all_rows(args) - first;
    const i32 before = static_cast<i32>(cluster_cta_rank()) * kBlockQ;
    first_row = first + before;
    rows = kEvenTiles || all - before > kBlockQ ? kBlockQ : all - before;
    const i32 last = first + (kEvenTiles || all > kCluster * kBlockQ ? kCluster * kBlockQ : all) - 1;
    blocks = KeyBlocks(args, sequence, position_of(first), position_of(last));
//% else
    first_row = index.tile * kBlockQ;
    rows = kEvenTiles || all_rows(args) - first_row > kBlockQ ? kBlockQ : all_rows(args) - first_row;
    blocks = KeyBlocks(args, sequence, position_of(first_row), position_of(first_row + rows - 1));
//% end
//% if split
    key_part.limit(args, blocks);
//% end
//% if visible_blocks
    visible = VisibleBlocks(args, sequence, head, index.tile);
    blocks.end = visible.before(blocks.end) + 1;
    if (blocks.end < blocks.begin) blocks.end = blocks.begin;
//% end
  }
//% include attention/rows_of_tile
};

// The barriers. A full one completes when TMA has filled its buffer, an empty one when every consumer warp has left it.
struct Barriers {
  u32 base;
//% for rings
  __device__ __forceinline__ u32 ${rings.name}_full(i32 stage) const { return base + ${rings.full} + 8 * stage; }
  __device__ __forceinline__ u32 ${rings.name}_empty(i32 stage) const { return base + ${rings.empty} + 8 * stage; }
//% end
//% if clustered
  // Where the first CTA's choice of a tile reaches the others of the cluster.
  __device__ __forceinline__ u32 passing() const { return base + ${passing}; }
  __device__ __forceinline__ u32 passed_tile() const { return tile_of(kQStages); }
//% end
  __device__ __forceinline__ u32 tile_of(i32 q_stage) const { return base + ${tile_numbers} + 4 * q_stage; }
//% if packed_sequences
  // The producer asks for the next tile.
  __device__ __forceinline__ u32 asked() const { return base + ${asked}; }
  __device__ __forceinline__ i32 record(i32 place) const { return static_cast<i32>(base + ${tile_records} + kTileRecordBytes * place); }
//% end

  __device__ __forceinline__ void init() const {
    constexpr u32 kConsumerWarps = 4 * kConsumers;
//% for rings
    for (i32 i = 0; i < ${rings.stages}; ++i) {
      mbarrier_init(${rings.name}_full(i), 1);
      mbarrier_init(${rings.name}_empty(i), ${rings.leavers});
    }
//% end
//% if clustered
    mbarrier_init(passing(), 1);
//% end
//% if packed_sequences
    mbarrier_init(asked(), 1);
//% end
    fence_mbarrier_init();
  }
};

//% include wgmma/pipeline_slot
//% include schedule/tile_scheduler_${tile_scheduler}
//% if packed_sequences
//% include schedule/recorded_tiles
//% end
//% include wgmma/load_tile
//% include wgmma/kv_loads_${kv_loads}
//% include wgmma/producer
//% if pair_tiles

//% include wgmma/pair_loads

//% end
//% include wgmma/exponential_${exponential}
//% include wgmma/warpgroup_softmax
//% include wgmma/row_max_online
//% include wgmma/warpgroup_${query_operand}
//% include wgmma/warpgroup_${probability_operand}
//% include wgmma/consumer
//% if pair_tiles

//% include wgmma/pair_terms
//% end

//% if sink
//% include attention/row_end_sink
//% end
//% include wgmma/store_rows_${results}
//% if adds_sums
//% include wgmma/promoted_sums
//% end
//% include wgmma/mainloop_${mainloop}
//% include wgmma/${consume}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm) ${entry}(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const Barriers barriers{shared + kBarrierOffset};
  const u32 warp = warp_index();
  if (thread_index() == 0) {
    prefetch_tensormap(args.q_map);
    prefetch_tensormap(args.k_map);
    prefetch_tensormap(args.v_map);
//% for pair_operands
    if (args.${pair_operands.name}_by_map) prefetch_tensormap(args.${pair_operands.name}_map);
//% end
    barriers.init();
  }
//% if clustered
  barrier_cluster_sync();
//% else
  bar_sync();
//% end
  if (warp < 4) {
    if (kProducerRegisters != 0) setmaxnreg_dec<kProducerRegisters>();
    if (thread_index() == 0) produce(args, barriers, shared);
//% if packed_sequences
    if (warp == 2) find_tiles(args, barriers);
//% end
//% if pair_tiles
    if (warp == 1) produce_pairs(args, barriers, shared);
//% end
  } else {
    if (kConsumerRegisters != 0) setmaxnreg_inc<kConsumerRegisters>();
    consume(args, barriers, shared, static_cast<i32>(warp / 4 - 1));
  }
//% if clustered
  // What a CTA's producer has under way may be for another CTA of its cluster.
  bar_warp_sync();
  barrier_cluster_sync();
//% end
}
//% include primitives/entry/${target}
