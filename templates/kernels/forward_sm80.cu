// Attention forward for one tile of queries of one head, on mma.sync (compute capability 8.0 and newer):
//
//   for each block of keys:   S = Q Kᵀ, masked          m' = max(m, rowmax S)
//                             P = exp2(c S - c m')      l = l·exp2(c m - c m') + rowsum P
//                             O = O·exp2(c m - c m') + P V
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
// Each warp owns kWarpRows queries and all keys of a block: S, P and O stay in its registers.
//% if packed
//
// The ${group} query heads that share K and V lie in a tile together: row r of the tiles is position r / kGroup of head r % kGroup of them.
//% end
//% if split
//
// The keys of a tile are split into args.key_parts parts, each the work of a CTA. What a part gives its rows is combined by another kernel.
//% end
//% if invariant
//
// Bits of a row depend on no size: each part of kPartBlocks blocks of keys is summed as if it were alone${parts_meet}.
//% end
//
// shared memory, bytes:
//% for shared_buffers
//   ${shared_buffers.offset}  ${shared_buffers.picture}
//% end

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kHeadDimQk = ${head_dim_qk}, kHeadDimV = ${head_dim_v};  // elements of a row of Q and K, and of V and O
constexpr i32 kElementBytes = ${element_bytes};
constexpr i32 kBlockQ = ${block_q}, kBlockKv = ${block_kv}, kWarps = ${warps}, kStages = ${stages};
constexpr bool kEvenTiles = ${even_tiles};     // lengths are multiples of the tiles
constexpr float kRescaleThreshold = ${rescale_threshold};  // in powers of two; 0: rescale at every block
constexpr bool kPartialBlocks = ${partial_blocks};  // whether any block can need a mask
constexpr i32 kCtasPerSm = ${ctas_per_sm};
//% if packed
constexpr i32 kGroup = ${group};               // query heads in a tile: a position in the sequence has as many rows
//% end
//% if invariant
constexpr i32 kPartBlocks = ${part_blocks};       // of keys, from a multiple of as many on
//% end

constexpr i32 kThreads = kWarps * kWarpSize;
constexpr i32 kWarpRows = kBlockQ / kWarps;
constexpr i32 kRowTiles = kWarpRows / 16;        // m16 tiles of a warp
constexpr i32 kKeyTiles = kBlockKv / 8;          // n8 tiles of S
constexpr i32 kChunks = kHeadDimV / 8;            // n8 tiles of O; 16-byte chunks of a row
constexpr i32 kDimSteps = kHeadDimQk / 16;         // k16 steps of Q Kᵀ
constexpr bool kDimTail = kHeadDimQk % 16 != 0;    // and a k8 step
constexpr u32 kRowBytes = ${row_bytes}, kSwizzleMask = ${swizzle_mask}, kSwizzleShift = ${swizzle_shift};
constexpr i32 kPrefetchGroups = kStages > 1 ? kStages - 1 : 1;  // cp.async groups of the ring's prefetch
//% for shared_offsets
constexpr u32 ${shared_offsets.name} = ${shared_offsets.offset};
//% end
constexpr u32 kKvTileBytes = ${kv_tile_bytes};
static_assert(kBlockQ % (16 * kWarps) == 0 && kBlockKv % 16 == 0 && kHeadDimV % 8 == 0);
static_assert(kHeadDimQk == kHeadDimV);  // rows of all tiles lie alike
static_assert(kRowBytes == kElementBytes * kHeadDimQk && kKvTileBytes == kBlockKv * kRowBytes);
static_assert(kKOffset >= kQOffset + kBlockQ * kRowBytes && kVOffset >= kKOffset + kStages * kKvTileBytes);

using ScoreFragments = float[kRowTiles][kKeyTiles][4];
using OutputFragments = float[kRowTiles][kChunks][4];

//% include tile/swizzle
//% include tile/${chunk_access}
//% include tile/copy_tile
//% include mma_sync/mma_operands
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

// The tile of queries that a CTA works on.
struct TileIndex {
  i32 tile, batch_head;
};
//% include schedule/tile_order_${tile_order}

//% if packed_sequences
//% include attention/packed_tile

//% end
//% if pair_tensors
//% include attention/head_of_batch

//% end
struct QueryTile {
  Sequence sequence;
  i32 head, head_kv;    // its first query head
  i32 first_row, rows;  // rows that exist
//% if split
  KeyPart key_part;     // of its keys
//% end

  __device__ __forceinline__ explicit QueryTile(const Arguments& args) {
//% if split
    key_part = KeyPart(args, block_index());
//% end
//% if packed_sequences
    const PackedTile placed(args, tile_index(args, ${tile_number}));
    const TileIndex index = placed.index;
//% else
    const TileIndex index = tile_index(args, ${tile_number});
//% end
//% include attention/heads_of_tile
    first_row = index.tile * kBlockQ;
    rows = kEvenTiles || all_rows(args) - first_row > kBlockQ ? kBlockQ : all_rows(args) - first_row;
  }
//% include attention/rows_of_tile
};

// Offsets are in elements.
__device__ __forceinline__ const char* row_pointer(const void* tensor, i64 sequence_offset, i64 head_offset, i64 row_offset) {
  return static_cast<const char*>(tensor) + kElementBytes * (sequence_offset + head_offset + row_offset);
}

//% include mma_sync/${kv_ring}

//% include mma_sync/query_rows_of_${query_rows}
//% include mma_sync/load_query
//% include mma_sync/${query_operand}
//% include mma_sync/gemm_qk
//% include mma_sync/${gemm_pv}
//% if sink
constexpr float kHeadroom = 0;  // powers of two by which sums are smaller than their maxima say
//% include attention/row_end_sink
//% end
//% include mma_sync/online_softmax

//% if score_terms
// kEdge: as ScoreTerms has it. first_row is the warp's first row.
template <bool kEdge>
__device__ __forceinline__ void apply_terms(ScoreFragments& s, const Arguments& args, const QueryTile& tile, i32 first_row, i32 block) {
  const i32 first_key = block * kBlockKv + lane_index() % 4 * 2;
#pragma unroll
  for (i32 i = 0; i < 2 * kRowTiles; ++i) {
    const i32 row = first_row + 8 * i + static_cast<i32>(lane_index() / 4), query = QueryTile::position_of(row);
    const ScoreTerms terms{${terms_of_row}};
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) {
        float& score = s[i / 2][n][i % 2 * 2 + e];
        score = terms.apply<kEdge>(args, score, 8 * n + e);
      }
    }
  }
}

//% end
// Sets the scores of keys that their row does not attend to to -inf. first_row is the warp's first row.
__device__ __forceinline__ void mask_scores(ScoreFragments& s, const Arguments& args, const Sequence& sequence, i32 first_row, i32 block) {
  const i32 first_key = block * kBlockKv + lane_index() % 4 * 2;
#pragma unroll
  for (i32 i = 0; i < 2 * kRowTiles; ++i) {
    const HiddenKeys hidden(args, sequence, QueryTile::position_of(first_row + 8 * i + lane_index() / 4), first_key);
#pragma unroll
    for (i32 n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e)
        if (hidden.has(8 * n + e)) s[i / 2][n][i % 2 * 2 + e] = negative_infinity();
    }
  }
}

template <bool kMasked>
__device__ __forceinline__ void kv_step(const Arguments& args, ${step_rows}, i32 block, i32 first_row, KvRing& ring,
                                        const QueryFragments& q, OnlineSoftmax& softmax, OutputFragments& acc_o${dropout_parameter}) {
  ScoreFragments acc_s = {};
  ScoreFunction score(args);
  ring.acquire_k();
  gemm_qk(acc_s, q, ring.k_tile());         // S = Q Kᵀ
  score.modify(acc_s);
//% if score_terms
  apply_terms<kMasked>(acc_s, args, tile, first_row, block);
//% end
  ring.acquire_v();
  if (kMasked) mask_scores(acc_s, args, ${sequence_of_step}, first_row, block);
  softmax.update<${may_hide}>(acc_s, acc_o);
  gemm_pv(acc_o, acc_s, ring.v_tile()${kept_keys});     // O = O + P V
  ring.release();
}

//% include mma_sync/store_rows_${results}
//% if adds_sums
//% include mma_sync/sums_of_parts
//% end

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm) ${entry}(const __grid_constant__ Arguments args) {
  const QueryTile tile(args);
  const i32 top_query = QueryTile::position_of(tile.first_row), bottom_query = QueryTile::position_of(tile.first_row + tile.rows - 1);
//% if split
  KeyBlocks blocks(args, tile.sequence, top_query, bottom_query);
  tile.key_part.limit(args, blocks);
//% else
  const KeyBlocks blocks(args, tile.sequence, top_query, bottom_query);
//% end
  const i32 warp_row = warp_index() * kWarpRows;  // the warp's first row in the tile
  const u32 shared = shared_base(), q_tile = shared + kQOffset;

  load_query_rows(args, tile, q_tile);
  cp_async_commit_group();
  const char* k = row_pointer(args.k, tile.sequence.key_offset(args.k_stride_batch, args.k_stride_row), tile.head_kv * args.k_stride_head, 0);
  const char* v = row_pointer(args.v, tile.sequence.key_offset(args.v_stride_batch, args.v_stride_row), tile.head_kv * args.v_stride_head, 0);
  KvRing ring{KvStream(args, tile.sequence, k, kElementBytes * args.k_stride_row, blocks.begin), KvStream(args, tile.sequence, v, kElementBytes * args.v_stride_row, blocks.begin),
              blocks.end - blocks.begin, shared};
  ring.prefetch();

  cp_async_wait_group<kPrefetchGroups>();
  bar_sync();
  const QueryFragments q(q_tile, warp_row);
  OnlineSoftmax softmax(${exponent_scale});
  OutputFragments acc_o = {};

  const i32 first_row = tile.first_row + warp_row;
//% if dropout
  const HeadDropout of_head(args, tile.sequence.batch, tile.head);
  QueryDropout dropout[kRowTiles];
#pragma unroll
  for (i32 t = 0; t < kRowTiles; ++t) dropout[t] = QueryDropout(of_head, first_row + 16 * t);
//% end
  i32 block = blocks.begin;
//% if adds_sums
  SumsOfParts sums(args);
  while (true) {
    i32 end = (block / kPartBlocks + 1) * kPartBlocks;  // of the part
    if (end > blocks.end) end = blocks.end;
//% if masked_begin
    for (; block < blocks.unmasked_begin && block < end; ++block) kv_step<true>(args, ${rows_of_step}, block, first_row, ring, q, softmax, acc_o${and_dropout});
//% end
    for (; block < blocks.unmasked_end && block < end; ++block) kv_step<false>(args, ${rows_of_step}, block, first_row, ring, q, softmax, acc_o${and_dropout});
    if (kPartialBlocks)
      for (; block < end; ++block) kv_step<true>(args, ${rows_of_step}, block, first_row, ring, q, softmax, acc_o${and_dropout});
    if (block >= blocks.end) break;
    sums.add(acc_o, softmax);
  }
  sums.finish(acc_o, softmax);
//% else
//% if masked_begin
  for (; block < blocks.unmasked_begin; ++block) kv_step<true>(args, ${rows_of_step}, block, first_row, ring, q, softmax, acc_o${and_dropout});
//% end
  for (; block < blocks.unmasked_end; ++block) kv_step<false>(args, ${rows_of_step}, block, first_row, ring, q, softmax, acc_o${and_dropout});
  if (kPartialBlocks)
    for (; block < blocks.end; ++block) kv_step<true>(args, ${rows_of_step}, block, first_row, ring, q, softmax, acc_o${and_dropout});
//% end

//% if raw_parts
  softmax.add_lanes();
//% else
//% if sink
  softmax.normalize(acc_o, args, [&](i32 t, i32 half) { return tile.head_of(first_row + 16 * t + 8 * half + static_cast<i32>(lane_index() / 4)); });
//% else
  softmax.normalize(acc_o${and_args_of_share});
//% end
//% end
  store_output(args, tile, q_tile, warp_row, acc_o);
  store_lse(args, tile, warp_row, softmax);
}
//% include primitives/entry/${target}
