// Attention backward on Hopper (wgmma, TMA, mbarriers) for one tile of keys of one ${tile_head}. Keys are the rows of all products but dQ's:
//
//   ${loops}:
//     Sᵀ = K Qᵀ        Pᵀ = exp2(c Sᵀ - LSE·log2(e)), masked     dV = dV + Pᵀ dO
//     dPᵀ = V dOᵀ      dSᵀ = Pᵀ ∘ (dPᵀ - delta)                  dK = dK + dSᵀ Q
//     ${dq_formula}, in fp32, to be scaled by ${dq_converter}
//   ${key_gradient_formula},   c = ${unit}·log2(e)
//
//% if capped
// Scores are capped: Sᵀ = tanh(scale / softcap·K Qᵀ), dSᵀ = Pᵀ ∘ (1 - Sᵀ²) ∘ (dPᵀ - delta).
//
//% end
//% if exponent_terms
// Pᵀ = exp2(c Sᵀ + log2(e)·(${gained_words} - LSE))${added_note}.
//
//% end
//% if dropout
// What dropout keeps of P counts in dV, divided by the share of it; dP where it is kept, likewise, in dS.
//
//% end
//% if short_sequences
// A sequence has as many rows as `seqused_q` and `seqused_kv` say, of those that ${sequence_rows}.
//
//% end
//% if fused_dbias
// The bias repeats along nothing: dS is its gradient, which warpgroup 0 stores.
//
//% end
//% if visible_blocks
// Blocks of queries are passed over where the attention mask shows them none of a tile's keys: another kernel has found them.
//
//% end
// Warpgroup 0 ${first_warpgroup_work}, one Q and LSE, one dO and delta. ${softmax_warpgroups}
// All blocks of a tile are walked in step: dS of a block goes to ${ds_readers} through shared memory.
//% if dq_by_softmax
// A block later each of them computes a part of that block's dQ, transposed, and adds it.
//% end
//% if clustered
//
// The two CTAs of a cluster take neighbouring tiles and walk the blocks of both in step. Each sends its dS to the other one, and computes half of
// the columns of dQ, for the keys of both tiles: there are half as many adds.
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
constexpr i32 kBlockQ = ${block_q}, kBlockKv = ${block_kv}, kSoftmaxWarpgroups = ${softmax_count};
//% if persistent
constexpr u32 kTileNumbers = ${tile_numbers};  // that are held at once
//% end
constexpr i32 kStages = ${stages}, kDoStages = ${do_stages}, kDsStages = ${ds_stages};  // tiles of Q, of dO, of dS
constexpr bool kOrderedWarpgroups = ${ordered_warpgroups};  // whether they issue S and dP in a fixed order
constexpr i32 k${first_warpgroup}Registers = ${dq_registers}, kSoftmaxRegisters = ${softmax_registers};  // 0: as they are at launch
//% if !dq_by_softmax
constexpr i32 kDqColumns = ${dq_columns}, kDqProducts = ${dq_products}, kDqLastColumns = ${dq_last_columns};  // of a product for dQ; that exist of the last
//% end
constexpr i32 kCtasPerSm = ${ctas_per_sm}, kCluster = ${cluster};  // CTAs
//% if shared_tickets
constexpr i32 kTicketBlocks = ${ticket_blocks};  // of queries, that share a ticket
//% end
//% if query_parts
constexpr i32 kQueryParts = ${query_part_count};  // of the queries of a head
//% end

constexpr i32 kWarpgroup = 128, kWarpgroupWarps = 4;  // threads, warps
constexpr i32 kWarpgroupKeys = 64, kWarpgroupsOfKeys = ${warpgroups_of_keys};  // rows of a wgmma; softmax warpgroups that share them
constexpr i32 kThreads = (kSoftmaxWarpgroups + 1) * kWarpgroup;
constexpr i32 kPanelColumns = ${panel_columns}, kPanels = ${panels};
constexpr u32 kPanelBytes = kElementBytes * kPanelColumns;  // of a row
constexpr u32 kQPanelStride = kBlockQ * kPanelBytes, kKvPanelStride = kBlockKv * kPanelBytes;
constexpr u32 kQTileBytes = kPanels * kQPanelStride, kKvTileBytes = kPanels * kKvPanelStride;
constexpr u32 kDsTileBytes = kElementBytes * kBlockQ * kBlockKv, kRowsBytes = 4 * kBlockQ;  // the latter: LSE of a block, or delta
//% for shared_offsets
constexpr u32 ${shared_offsets.name} = ${shared_offsets.offset};
//% end
constexpr i32 kChunks = kHeadDimQk / 8;                 // 16-byte chunks of a row
constexpr i32 kDimSteps = (kHeadDimQk + 15) / 16;       // k16 steps over the head dim; columns beyond it are zeros
constexpr i32 kQuerySteps = kBlockQ / 16, kKeySteps = kBlockKv / 16;  // the same over a block of queries, a tile of keys
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles, and dK and dV, lie alike
static_assert(kBlockQ % ${query_multiple} == 0 && kBlockKv % kWarpgroupKeys == 0 && kHeadDimQk % 8 == 0 && kPanels * kPanelColumns >= 16 * kDimSteps);

// A thread's accumulators: element 4 n + i lies in row lane / 4 + 8 (i / 2) of its warp's 16 rows, in column 8 n + 2 (lane % 4) + i % 2.
using ScoreFragments = float[kBlockQ / 2];        // of Sᵀ or dPᵀ
using PackedScores = u32[kBlockQ / 4];            // of Pᵀ or dSᵀ in 16 bits: the A operand of a product over the queries
using GradientFragments = float[kHeadDimV / 2];    // of dK or dV

//% include wgmma/matrix_descriptor
//% include wgmma/pipeline_slot
//% include wgmma/tile_slot
//% include wgmma/transpose_in_quad
//% include tile/pack_elements
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include attention/hidden_queries
//% include attention/query_blocks
//% if query_parts
//% include attention/query_part
//% end
//% include attention/score_${score}
//% if dropout
//% include attention/dropout_of_keys
//% end
//% if alibi
//% include attention/alibi
//% end
//% if pair_tensors
//% include attention/pair_tensors
//% end
//% include attention/kv_source_${kv_source}
//% if pair_tiles
//% include wgmma/pair_tiles
//% end
//% include mma_sync/sums_vector
//% include mma_sync/sums_place
//% if dq_by_softmax
//% include mma_sync/sums_place_transposed
//% end
//% include schedule/key_tiles_per_${key_tile_head}
//% include schedule/tile_id_${tile_id}
//% if packed_sequences
//% include schedule/key_tile_record

//% end
//% include schedule/key_tile_order_${key_tile_order}
//% include schedule/${key_tile}
//% if visible_blocks
//% include attention/visible_blocks
//% end

// Named barriers: of warpgroup 0; one for each softmax warpgroup, from kOrder on${and_panels}; others follow.
constexpr u32 kTickets = 1, kOrder = kTickets + 1;
//% if clustered
constexpr u32 kScorePanel = kOrder + kSoftmaxWarpgroups;
//% end
//% if p_in_ds
constexpr u32 kProbabilitiesTaken = kOrder + 2 * kSoftmaxWarpgroups;  // one for each 64 keys
//% end

// The barriers. A full one completes when its buffer has been filled, by TMA or by every warp of those that fill it; an empty one when every warp
// of those that read the buffer has left it.
struct Barriers {
  u32 base;
//% for rings
  __device__ __forceinline__ u32 ${rings.name}_full(i32 stage) const { return base + ${rings.full} + 8 * stage; }
  __device__ __forceinline__ u32 ${rings.name}_empty(i32 stage) const { return base + ${rings.empty} + 8 * stage; }
//% end
  __device__ __forceinline__ u32 k_full() const { return base + ${k_full}; }
  __device__ __forceinline__ u32 v_full() const { return base + ${v_full}; }
//% if persistent
  // The tile has left them.
  __device__ __forceinline__ u32 k_empty() const { return base + ${k_empty}; }
  __device__ __forceinline__ u32 v_empty() const { return base + ${v_empty}; }
//% end
//% if clustered
  __device__ __forceinline__ u32 peer_ds_full(i32 stage) const { return base + ${peer_ds_full} + 8 * stage; }
//% end

  __device__ __forceinline__ void init() const {
//% for rings
    for (i32 i = 0; i < ${rings.stages}; ++i) {
      mbarrier_init(${rings.name}_full(i), ${rings.fillers});
      mbarrier_init(${rings.name}_empty(i), ${rings.readers});
    }
//% end
    mbarrier_init(k_full(), 1);
    mbarrier_init(v_full(), 1);
//% if persistent
    mbarrier_init(k_empty(), kWarpgroupWarps * ${k_readers});
    mbarrier_init(v_empty(), kWarpgroupWarps * ${v_readers});
//% end
//% if clustered
    for (i32 i = 0; i < kDsStages; ++i) mbarrier_init(peer_ds_full(i), 1);
//% end
    fence_mbarrier_init();
  }
};

//% include schedule/key_tiles_of_cta_${tile_scheduler}

//% if uniform_blocks
__device__ __forceinline__ i32 uniform(i32 x) { return static_cast<i32>(redux_sync_or_b32(static_cast<u32>(x))); }

//% end
// The blocks of queries that a tile's CTA walks through, for each of its query heads: those that attend to any of its keys${walked_by}.
struct QueryWalk {
  QueryBlocks<true> blocks;
//% if visible_blocks
  VisibleBlocks visible;  // of these
//% end

//% if query_parts
  __device__ __forceinline__ QueryWalk(const Arguments& args, const KeyTile& tile) : blocks(args, tile.sequence, ${walked_keys}) {
    keep_part(blocks, tile.part);
//% else
  __device__ __forceinline__ QueryWalk(const Arguments& args, const KeyTile& tile) : blocks(args, tile.sequence, ${walked_keys}) {
//% end
//% if short_sequences
    // Every lane has the same numbers, as ptxas cannot know of a load: the loops would count as divergent, and each product would fetch its descriptors from
    // the registers of the lanes.
    blocks.begin = uniform(blocks.begin);
    blocks.end = uniform(blocks.end);
//% end
//% if visible_blocks
    visible = VisibleBlocks(args, tile.sequence, TileHeads::of_queries(args, tile.head, 0), tile.tile);
    blocks.begin = uniform(visible.from(blocks.begin, blocks.end));
  }
  // The one after a block, or where they end: for a whole warp, whose lanes then know that they have the same number.
  __device__ __forceinline__ i32 after(i32 block) const { return uniform(visible.from(block + 1, blocks.end)); }
//% else
  }
//% end
  __device__ __forceinline__ bool any() const { return blocks.begin < blocks.end; }
};

//% include wgmma/load_tile
//% include wgmma/query_loads
//% if loads_ahead
//% include wgmma/tile_loads
//% end
//% if bulk_adds
//% include wgmma/bulk_adds
//% end
//% if dq_by_softmax
//% include wgmma/query_producer
//% else
//% include wgmma/dq_tickets_${dq_tickets}
//% include wgmma/dq_products
//% include wgmma/dq_columns_${dq_adds}
//% include wgmma/dq_scores_${dq_scores}
//% if fused_dbias
//% include wgmma/fused_dbias
//% end
//% include wgmma/dq_warpgroup
//% end
//% if fused_convert
//% include wgmma/convert_finished_heads
//% end
//% include wgmma/key_scores
//% include wgmma/dkdv_epilogue_${dkdv_epilogue}
//% include wgmma/softmax_warpgroup
//% include wgmma/skip_block
//% include wgmma/gradients_${gradients}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm) ${entry}(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const Barriers barriers{shared + kBarrierOffset};
  const KeyTilesOfCta tiles(args, barriers, shared);
  const u32 warp = warp_index();
  if (thread_index() == 0) {
    prefetch_tensormap(args.k_map);
    prefetch_tensormap(args.q_map);
    prefetch_tensormap(args.v_map);
    prefetch_tensormap(args.d_o_map);
//% for pair_operands
    if (args.${pair_operands.name}_by_map) prefetch_tensormap(args.${pair_operands.name}_map);
//% end
//% if fused_dbias
    if (args.d_bias_by_map) prefetch_tensormap(args.d_bias_map);
//% end
    barriers.init();
    griddepcontrol_launch_dependents();
  }
//% if packed_sequences
  griddepcontrol_wait();  // the list of tiles is another kernel's
//% end
//% if clustered
  barrier_cluster_sync();
//% else
  bar_sync();
//% end
  if (warp < kWarpgroupWarps) {
//% if dq_by_softmax
    if (kProducerRegisters != 0) setmaxnreg_dec<kProducerRegisters>();
    QueryProducer producer(static_cast<i32>(warp));
    tiles.for_each(args, producer.slot, [&](i32 index) { load_operands(args, barriers, shared, index, producer${and_tiles_passed}); });
//% else
    if (kDqRegisters != 0) setmaxnreg_dec<kDqRegisters>();
    DqWarpgroup warpgroup(static_cast<i32>(warp));
//% if persistent
    if (warp == 1 || warp == 2) warpgroup.loads.begin_cta(args, barriers, shared);
//% end
    tiles.for_each(args, warpgroup.slot, [&](i32 index) {
      add_query_gradients(args, barriers, shared, index, warpgroup${and_tiles_passed});
//% if fused_convert
      convert_finished_heads(args, KeyTile(args, opaque_i32(index)), shared);
//% end
    });
//% end
  } else {
    if (kSoftmaxRegisters != 0) setmaxnreg_inc<kSoftmaxRegisters>();
    SoftmaxWarpgroup warpgroup(barriers, shared, static_cast<i32>(warp / kWarpgroupWarps - 1));
//% if persistent
    warpgroup.begin_order();
//% end
    tiles.for_each(args, warpgroup.slot, [&](i32 index) { add_key_gradients(args, barriers, index, warpgroup${and_tiles_passed}); });
//% if persistent
    warpgroup.end_order();
//% end
  }
//% if clustered
  // The other CTA may still send what this one has no use for.
  bar_warp_sync();
  barrier_cluster_sync();
//% end
}
//% include primitives/entry/${target}
