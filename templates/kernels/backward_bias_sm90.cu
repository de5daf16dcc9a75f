// The gradient of a bias, on Hopper (wgmma, TMA, mbarriers):
//
//   dbias = Σ P ∘ (dP - delta)     over the batch entries, heads and queries along which the bias repeats
//
//   P = exp2(c S + log2(e)·(${gained_words} - LSE)), masked,   S = Q Kᵀ,   dP = dO Vᵀ,   c = ${unit}·log2(e)${added_note}
//
//% if capped
// Scores are capped: S = tanh(scale / softcap·Q Kᵀ). The bias is added behind that.
//
//% end
//% if short_sequences
// A sequence has as many rows as `seqused_q` and `seqused_kv` say, of those that lie in the tensors.
//
//% end
//% if dropout
// dP counts where dropout keeps P, divided by the share of what it keeps.
//
//% end
// A CTA has a tile of kBlockQ queries and kBlockKv keys of one plane of the bias; where that repeats along the queries, kBlockKv keys of all of them. It walks
// over the tiles of S that share these elements, in a fixed order, and sums in registers; then it takes another one. Warpgroup 0 loads: one thread panels of
// the operands, into a ring of slots, another one the tile of the bias, once${mask_words}. Each of the others owns 64 queries: their S, dP and sums.
//
// shared memory, bytes; a slot holds kPanelColumns columns of a tile of Q and K, or of dO and V:
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
constexpr i32 kElementBytes = ${element_bytes}, kBiasBytes = ${bias_bytes};
constexpr i32 kBlockQ = ${block_q}, kBlockKv = ${block_kv}, kConsumers = ${consumers}, kSlots = ${slots};
constexpr i32 kRows = ${statistics_rows};  // queries whose statistics lie together
constexpr i32 kProducerRegisters = ${producer_registers}, kConsumerRegisters = ${consumer_registers};

constexpr i32 kWarpgroup = 128, kWarpgroupWarps = 4, kWarpgroupRows = 64;  // threads, warps, rows of a wgmma
constexpr i32 kThreads = (kConsumers + 1) * kWarpgroup;
constexpr i32 kPanelColumns = ${panel_columns}, kPanels = ${panels};
constexpr u32 kPanelBytes = kElementBytes * kPanelColumns;  // of a row
constexpr u32 kQueryPanelBytes = kBlockQ * kPanelBytes, kKeyPanelBytes = kBlockKv * kPanelBytes, kSlotBytes = kQueryPanelBytes + kKeyPanelBytes;
//% for shared_offsets
constexpr u32 ${shared_offsets.name} = ${shared_offsets.offset};
//% end
constexpr i32 kDimSteps = (kHeadDimQk + 15) / 16;       // k16 steps of a product over the head dim; columns beyond it are zeros
constexpr i32 kPanelSteps = kPanelColumns / 16;         // of a panel
constexpr i32 kPanelsUnderWay = kPanels < 2 ? 1 : 2;    // of a product, at most
constexpr i32 kKeySteps = kBlockKv / 16;                // sixteens of keys
static_assert(kBlockQ == kWarpgroupRows * kConsumers && kHeadDimQk % 8 == 0 && kHeadDimQk == kHeadDimV);
static_assert(kSlots >= 2 * kPanelsUnderWay);

// A thread's accumulators: element 4 n + i lies in row lane / 4 + 8 (i / 2) of its warp's 16 rows, in column 8 n + 2 (lane % 4) + i % 2.
using ScoreFragments = float[kBlockKv / 2];

//% include wgmma/matrix_descriptor
//% include wgmma/pipeline_slot
//% include attention/sequence_${sequence}
//% include attention/mask_${mask}
//% include attention/key_blocks
//% include schedule/bias_tiles
//% include attention/score_${score}
//% if dropout
//% include attention/dropout_of_queries
//% end
//% if alibi
//% include attention/alibi
//% end
//% include attention/pair_tensors
//% include attention/kv_source_${kv_source}
//% include tile/delta_${statistics_order}
//% include tile/lse_${statistics_order}
//% include tile/statistics_of_query
//% include wgmma/pair_tiles
//% include wgmma/pair_elements
//% if bias_by_matrices
//% include wgmma/transpose_in_quad
//% include tile/pack_elements
//% end

constexpr u32 kSumsBarrier = 1;  // the named barrier of all consumers

// The barriers. A full one completes when TMA has filled its buffer, an empty one when every consumer warp has left it.
struct Barriers {
  u32 base;
  static constexpr u32 kOfSlot = 16, kOfSlots = kOfSlot * kSlots;  // bytes
  static_assert(kOfSlots + 32 == ${barrier_bytes});
  __device__ __forceinline__ u32 slot_full(i32 slot) const { return base + kOfSlot * slot; }
  __device__ __forceinline__ u32 slot_empty(i32 slot) const { return base + kOfSlot * slot + 8; }
  __device__ __forceinline__ u32 bias_full() const { return base + kOfSlots; }
  __device__ __forceinline__ u32 bias_empty() const { return base + kOfSlots + 8; }
//% if attention_mask
  __device__ __forceinline__ u32 mask_full() const { return base + kOfSlots + 16; }
  __device__ __forceinline__ u32 mask_empty() const { return base + kOfSlots + 24; }
//% end

  __device__ __forceinline__ void init() const {
    constexpr u32 kConsumerWarps = kWarpgroupWarps * kConsumers;
    for (i32 i = 0; i < kSlots; ++i) {
      mbarrier_init(slot_full(i), 1);
      mbarrier_init(slot_empty(i), kConsumerWarps);
    }
    mbarrier_init(bias_full(), 1);
    mbarrier_init(bias_empty(), kConsumerWarps);
//% if attention_mask
    mbarrier_init(mask_full(), 1);
    mbarrier_init(mask_empty(), kConsumerWarps);
//% end
    fence_mbarrier_init();
  }
};

// Tiles of the bias are dealt out to CTAs one after the other.
__device__ __forceinline__ u32 first_number() { return block_index(); }
__device__ __forceinline__ u32 next_number(u32 number) { return number + grid_size(); }
__device__ __forceinline__ bool is_number(const Arguments& args, u32 number) { return number < static_cast<u32>(args.tiles); }

// Copies panels of Q and K, and of dO and V, in the order in which the consumers want them.
struct OperandLoads {
  Barriers barriers;
  u32 shared;
  PipelineSlot<kSlots> slot;

  // The panels of both products: one loop, as two would take more registers than this warpgroup keeps.
  __device__ __forceinline__ void load(const Arguments& args, i32 head, i32 head_kv, MapPlace queries, MapPlace keys) {
#pragma unroll 1
    for (i32 i = 0; i < 2 * kPanels; ++i) {
      const bool of_dp = i >= kPanels;
      const i32 panel = of_dp ? i - kPanels : i;
      const TensorMap &of_queries = of_dp ? args.d_o_map : args.q_map, &of_keys = of_dp ? args.v_map : args.k_map;
      const u32 full = barriers.slot_full(slot.stage), to = shared + kSlotOffset + slot.stage * kSlotBytes;
      mbarrier_wait_parity(barriers.slot_empty(slot.stage), slot.parity ^ 1);
      mbarrier_arrive_expect_tx(full, kSlotBytes);
      load_box(to, of_queries, full, panel * kPanelColumns, head, queries);
      load_box(to + kQueryPanelBytes, of_keys, full, panel * kPanelColumns, head_kv, keys);
      slot.advance();
    }
  }
};

// For one thread.
__device__ __forceinline__ void load_operands(const Arguments& args, const Barriers& barriers, u32 shared) {
  OperandLoads loads{barriers, shared};
  for (u32 number = first_number(); is_number(args, number); number = next_number(number)) {
    ScoreTiles at(args, BiasTile(args, number));
    for (bool any = at.find(args); any; any = at.next(args)) {
      const Sequence sequence(args, at.batch);
      loads.load(args, at.head, at.head / args.group_size, place_of_queries(args, sequence, at.row_tile * kBlockQ),
                 place_of_keys(args, sequence, at.key_tile));
    }
  }
}

// For one thread. Where no tensor map describes a tensor, the consumers load it themselves once its buffer is theirs.
__device__ __forceinline__ void load_pair_tiles(const Arguments& args, const Barriers& barriers, u32 shared) {
  u32 bias_parity = 0;
//% if attention_mask
  u32 mask_parity = 0;
//% end
  for (u32 number = first_number(); is_number(args, number); number = next_number(number)) {
    ScoreTiles at(args, BiasTile(args, number));
    if (!at.find(args)) continue;
    const i32 first_key = at.key_tile * kBlockKv;
    mbarrier_wait_parity(barriers.bias_empty(), bias_parity ^ 1);
    mbarrier_arrive_expect_tx(barriers.bias_full(), args.bias_by_map ? BiasPanels::kTileBytes : 0);
    if (args.bias_by_map) copy_bias(args, bias_tile(shared, 0), barriers.bias_full(), at.batch, at.head, at.row_tile * kBlockQ, first_key);
    bias_parity ^= 1;
//% if attention_mask
    do {
      mbarrier_wait_parity(barriers.mask_empty(), mask_parity ^ 1);
      mbarrier_arrive_expect_tx(barriers.mask_full(), args.attention_mask_by_map ? AttentionMaskPanels::kTileBytes : 0);
      if (args.attention_mask_by_map)
        copy_attention_mask(args, attention_mask_tile(shared, 0), barriers.mask_full(), at.batch, at.head, at.row_tile * kBlockQ, first_key);
      mask_parity ^= 1;
    } while (at.next(args));
//% end
  }
}

// What a row of a tile of S needs beside its scores. A query that sees no key, or does not exist, has an LSE of +inf: its P is 0.
struct QueryRow {
  float lse_log2, delta;
//% if alibi
  float slope, from_diagonal;  // from_diagonal: the distance of the thread's first key from the diagonal of the query
//% end

  // statistics: of the block of kRows queries that this one lies in.
  __device__ __forceinline__ QueryRow(const Arguments& args, const Sequence& sequence, const float* statistics, i32 query) : lse_log2(-negative_infinity()), delta(0) {
    if (query >= stored_queries(args, sequence)) return;
    lse_log2 = lse_log2_of(statistics, query % kRows);
    delta = delta_of(statistics, query % kRows)${per_share};
  }
//% if alibi
  __device__ __forceinline__ void set_alibi(const Arguments& args, const Sequence& sequence, i32 head, i32 query, i32 first_key) {
    slope = alibi_slope(args, sequence, head);
    from_diagonal = static_cast<float>(first_key - alibi_diagonal(args, sequence, query));
  }
//% end
  // What P's exponent has beside the score.
  __device__ __forceinline__ float exponent(float bias, i32 ${distance_of_row}) const {
    constexpr float kLog2E = 1.44269504088896340736f;
    return fma_rn_f32(kLog2E, bias, ${row_exponent});
  }
};

// Whether some pair of a tile of S is hidden, or a query of it does not exist.
__device__ __forceinline__ bool hides_pairs(const Arguments& args, const ScoreTiles& at) {
  const Sequence sequence(args, at.batch);
  const i32 first = at.row_tile * kBlockQ, end = first + kBlockQ;
  if (end > query_count(args, sequence)) return true;
  const KeyBlocks blocks(args, sequence, first, end - 1);
  const i32 key_tile = at.key_tile;
  return key_tile < blocks.unmasked_begin || key_tile >= blocks.unmasked_end;
}

// The tiles of S that a warpgroup adds. A vote has one result for all lanes, as ptxas cannot know of a length that was loaded: the loop would count as
// divergent.
struct SharingTiles {
  ScoreTiles at;
  bool any, hides;  // whether there is one, and whether some pair of it is hidden

  __device__ __forceinline__ SharingTiles(const Arguments& args, const BiasTile& tile) : at(args, tile) {
    any = vote_sync_any(at.find(args));
    hides = vote_sync_any(any && hides_pairs(args, at));
  }
  __device__ __forceinline__ void next(const Arguments& args) {
    any = vote_sync_any(at.next(args));
    if (ScoreTiles::differ(args)) hides = vote_sync_any(any && hides_pairs(args, at));
  }
};

// Where a warpgroup stands in the rings, and its products.
struct Consumer {
  const Arguments& args;
  Barriers barriers;
  u32 shared;
  i32 index;                            // of the warpgroup among the consumers
  PipelineSlot<kSlots> slot;            // the next one to multiply
  u32 bias_parity = 0;
  bool has_bias = false;                // of the tile
//% if attention_mask
  u32 mask_parity = 0;
//% end

  __device__ __forceinline__ i32 first_row_of_warp() const { return index * kWarpgroupRows + static_cast<i32>(warp_index() % kWarpgroupWarps) * 16; }

  // Adds P ∘ (dP - delta) of a tile of S. What it needs beside its products is looked up while these run, and so is
  // the next tile; before them where a mask is loaded or packed sequences are found, for which they leave no registers.
  template <bool kMasked>
  __device__ __forceinline__ void add_tile(SharingTiles& tiles, ScoreFragments& sums) {
    ScoreFragments s, dp;
//% if !looks_up_first
    multiply<0>(s);                // S = Q Kᵀ
    multiply<kPanelsUnderWay>(dp);  // dP = dO Vᵀ
//% end
    const ScoreTiles& at = tiles.at;
    const Sequence sequence(args, at.batch);
    const i32 query = at.row_tile * kBlockQ + first_row_of_warp() + static_cast<i32>(lane_index() / 4);
    const i32 first_key = at.key_tile * kBlockKv + static_cast<i32>(lane_index() % 4 * 2);
    static_assert(kRows % 16 == 0);  // the rows of a warp lie in one block
    const float* const statistics = statistics_of_query(args, sequence, at.head, query);
    QueryRow rows[2] = {QueryRow(args, sequence, statistics, query), QueryRow(args, sequence, statistics, query + 8)};
//% if alibi
    rows[0].set_alibi(args, sequence, at.head, query, first_key);
    rows[1].set_alibi(args, sequence, at.head, query + 8, first_key);
//% end
    load_pairs(at, sequence);
//% if dropout
    const QueryDropout dropout(HeadDropout(args, at.batch, at.head), at.row_tile * kBlockQ + first_row_of_warp());
    const i32 first_sixteen = at.key_tile * kKeySteps;
//% end
    tiles.next(args);
//% if looks_up_first
    multiply<0>(s);                // S = Q Kᵀ
    multiply<kPanelsUnderWay>(dp);  // dP = dO Vᵀ
//% end
    wgmma_wait_group<kPanelsUnderWay>();
    wgmma_landed(s);
    if (kPanels <= kPanelsUnderWay) release<2 * kPanelsUnderWay, kPanelsUnderWay>();
    ScoreFunction(args).modify(s);
    wait_bias();
//% if attention_mask
    wait_mask();
//% end
    exponentiate<kMasked>(s, sequence, rows, query, first_key);
    wgmma_wait_group<0>();
    wgmma_landed(dp);
    release<kPanelsUnderWay, kPanelsUnderWay>();
//% if dropout
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
      const KeptElements kept = dropout.of_keys(args, first_sixteen + step);
#pragma unroll
      for (i32 i = 0; i < 8; ++i) dp[8 * step + i] = kept.has(i / 4, i / 2 % 2, i % 2) ? dp[8 * step + i] * args.dropout_scale : 0.0f;
    }
//% end
#pragma unroll
    for (i32 i = 0; i < kBlockKv / 2; ++i) sums[i] = fma_rn_f32(s[i], dp[i] - rows[i / 2 % 2].delta, sums[i]);
  }

  // When all tiles of S that share a tile of the bias have been added.
  __device__ __forceinline__ void leave_bias() {
    fence_proxy_async();  // no product waits for what was read: the release must not overtake it
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.bias_empty());
    bias_parity ^= 1;
    has_bias = false;
  }

 private:
  // The product of a tile of queries and one of keys over the head dim, panel after panel, of which each is a group. kBefore: groups under way.
  template <i32 kBefore>
  __device__ __forceinline__ void multiply(ScoreFragments& d) {
#pragma unroll
    for (i32 panel = 0; panel < kPanels; ++panel) {
      if (panel >= kPanelsUnderWay) {
        wgmma_wait_group<kPanelsUnderWay - 1>();
        if (panel == kPanelsUnderWay) release<kBefore + kPanelsUnderWay, kBefore>();
        release<kPanelsUnderWay, 1>();
      }
      mbarrier_wait_parity(barriers.slot_full(slot.stage), slot.parity);
      const u32 at = shared + kSlotOffset + slot.stage * kSlotBytes;
      const u32 queries = tile_place(at + index * kWarpgroupRows * kPanelBytes, kQueryPanelBytes), keys = tile_place(at + kQueryPanelBytes, kKeyPanelBytes);
      wgmma_fence();
#pragma unroll
      for (i32 step = 0; step < kPanelSteps; ++step) {
        if (panel * kPanelSteps + step >= kDimSteps) break;
        const u64 a = matrix_descriptor(queries + column_step(step, kQueryPanelBytes)), b = matrix_descriptor(keys + column_step(step, kKeyPanelBytes));
        if (panel == 0 && step == 0)
          wgmma_ss_first<false>(d, a, b);
        else
          wgmma_ss<true, false>(d, a, b);
      }
      wgmma_commit_group();
      slot.advance();
    }
  }
  // Slots whose products have landed: so many, from that on which lies kBehind before the next one.
  template <i32 kBehind, i32 kCount>
  __device__ __forceinline__ void release() const {
    if (lane_index() != 0) return;
#pragma unroll
    for (i32 i = 0; i < kCount; ++i) {
      const i32 stage = slot.stage - kBehind + i;
      mbarrier_arrive(barriers.slot_empty(stage < 0 ? stage + kSlots : stage));
    }
  }

  // What is not described by a tensor map each warp loads for its own rows, before the products take the registers.
  __device__ __forceinline__ void load_pairs(const ScoreTiles& at, ${sequence_of_pairs}) {
    const i32 row = first_row_of_warp(), query = at.row_tile * kBlockQ + row, first_key = at.key_tile * kBlockKv;
    if (!has_bias && !args.bias_by_map) {
      Sequence all(args, at.batch);
//% if short_sequences
      // Sequences that share the tile may be longer.
      all.queries = args.${pair_queries};
      all.keys = args.${pair_keys};
//% end
      wait_bias();
      BiasPanels::load<16, kBlockKv>(bias_tile(shared, 0), row, 0, first_key, last_of(args.${pair_keys}), [&](i32 i) { return bias_of_query(args, all, at.head, query + i); });
    }
    has_bias = true;
//% if attention_mask
    if (!args.attention_mask_by_map) {
      wait_mask();
      AttentionMaskPanels::load<16, kBlockKv>(attention_mask_tile(shared, 0), row, 0, first_key, last_of(key_count(args, sequence)),
                                              [&](i32 i) { return attention_mask_of_query(args, sequence, at.head, query + i); });
    }
//% end
  }
  __device__ __forceinline__ void wait_bias() const { mbarrier_wait_parity(barriers.bias_full(), bias_parity); }
//% if attention_mask
  __device__ __forceinline__ void wait_mask() const { mbarrier_wait_parity(barriers.mask_full(), mask_parity); }
//% end

  // Turns S into P. An exponent is positive only by what rounding left of LSE: it counts as negative, so that P does not exceed 1. What the tensors hold for
  // a hidden pair may be anything.
  template <bool kMasked>
  __device__ __forceinline__ void exponentiate(ScoreFragments& s, const Sequence& sequence, const QueryRow (&rows)[2], i32 query, i32 first_key) {
    HiddenKeys hidden[2] = {HiddenKeys(args, sequence, query, first_key), HiddenKeys(args, sequence, query + 8, first_key)};
#pragma unroll
    for (i32 half = 0; half < 2; ++half)
      if (rows[half].lse_log2 == -negative_infinity()) hidden[half].last = -1;
    PairElements pairs(args, shared, 0, index);
#pragma unroll
    for (i32 step = 0; step < kKeySteps; ++step) {
      pairs.read(step);
#pragma unroll
      for (i32 i = 0; i < 8; ++i) {
        const i32 half = i / 2 % 2, distance = 16 * step + i / 4 * 8 + i % 2;
        float& p = s[8 * step + i];
        p = ex2_approx_ftz_f32(-abs_f32(fma_rn_f32(p, args.softmax_scale_log2, rows[half].exponent(pairs.bias(i), distance))));
        if (${is_hidden}) p = 0;
      }
    }
//% if attention_mask
    fence_proxy_async();
    bar_warp_sync();
    if (lane_index() == 0) mbarrier_arrive(barriers.mask_empty());
    mask_parity ^= 1;
//% end
  }
};

//% if bias_by_matrices
__device__ __forceinline__ void store_element(char* to, float x) { st_global_b16(to, static_cast<u16>(pack_elements(x, 0))); }
//% else
__device__ __forceinline__ void store_element(char* to, float x) { st_global_f32(reinterpret_cast<float*>(to), x); }
//% end

// Stores the sums of this thread's two rows. first_query: of the thread; first_key: of the tile.
__device__ __forceinline__ void store_rows(const Arguments& args, char* plane, i32 first_query, i32 first_key, const ScoreFragments& sums) {
  const i32 quad = static_cast<i32>(lane_index() % 4), keys = args.${pair_keys} - first_key;
  const i64 row_bytes = kBiasBytes * args.d_bias_stride_row;
  const bool aligned = ((reinterpret_cast<u64>(plane) | static_cast<u64>(row_bytes)) & 15) == 0;
#pragma unroll
  for (i32 half = 0; half < 2; ++half) {
    const i32 query = first_query + 8 * half;
    const bool exists = query < args.${pair_queries};
    char* const row = plane + query * row_bytes + kBiasBytes * static_cast<i64>(first_key);
//% if bias_by_matrices
    // The lanes of a quad exchange words of four fragments, so that each lane has eight keys that follow each other.
#pragma unroll
    for (i32 group = 0; group < kBlockKv / 32; ++group) {
      u32 words[4];
#pragma unroll
      for (i32 n = 0; n < 4; ++n) words[n] = pack_elements(sums[16 * group + 4 * n + 2 * half], sums[16 * group + 4 * n + 2 * half + 1]);
      transpose_in_quad(words);
      const i32 key = 32 * group + 8 * quad;
      if (exists && aligned && key + 8 <= keys) {
        st_global_v4_b32(row + kBiasBytes * key, {words[0], words[1], words[2], words[3]});
      } else if (exists) {
#pragma unroll
        for (i32 i = 0; i < 8; ++i)
          if (key + i < keys) st_global_b16(row + kBiasBytes * (key + i), static_cast<u16>(words[i / 2] >> i % 2 * 16));
      }
    }
//% else
#pragma unroll
    for (i32 n = 0; n < kBlockKv / 8; ++n) {
      const i32 key = 8 * n + 2 * quad;
      const float first = sums[4 * n + 2 * half], second = sums[4 * n + 2 * half + 1];
      if (exists && aligned && key + 2 <= keys) {
        st_global_v2_f32(reinterpret_cast<float*>(row + kBiasBytes * key), {first, second});
      } else if (exists) {
        if (key < keys) store_element(row + kBiasBytes * key, first);
        if (key + 1 < keys) store_element(row + kBiasBytes * (key + 1), second);
      }
    }
//% end
  }
}

// Stores a row for all queries: sums over the rows of the CTA in a fixed order, by its lanes, then by its warps. Those of warps take
// the place of the bias, which all have read.
__device__ __forceinline__ void store_sum_of_rows(const Arguments& args, Consumer& consumer, char* row, i32 first_key, const ScoreFragments& sums) {
  constexpr u32 kFloat = sizeof(float), kWarps = kWarpgroupWarps * kConsumers;
  const u32 lane = lane_index(), of_warps = consumer.shared + kBiasOffset, of_warp = of_warps + kFloat * kBlockKv * (warp_index() - kWarpgroupWarps);
  bar_sync_named(kSumsBarrier, kConsumers * kWarpgroup);
#pragma unroll
  for (i32 n = 0; n < kBlockKv / 8; ++n) {
#pragma unroll
    for (i32 e = 0; e < 2; ++e) {
      float sum = sums[4 * n + e] + sums[4 * n + 2 + e];
      sum += shfl_sync_bfly_f32<4>(sum);
      sum += shfl_sync_bfly_f32<8>(sum);
      sum += shfl_sync_bfly_f32<16>(sum);
      if (lane < 4) st_shared_b32(of_warp + kFloat * (8 * n + 2 * lane + e), f32_to_bits(sum));
    }
  }
  bar_sync_named(kSumsBarrier, kConsumers * kWarpgroup);
  if (consumer.index != 0) return;
  static_assert(kBlockKv == kWarpgroup);
  const u32 key = thread_index() % kWarpgroup;
  float sum = 0;
  for (u32 warp = 0; warp < kWarps; ++warp) sum += bits_to_f32(ld_shared_b32(of_warps + kFloat * (warp * kBlockKv + key)));
  if (first_key + static_cast<i32>(key) < args.${pair_keys}) store_element(row + kBiasBytes * static_cast<i64>(first_key + static_cast<i32>(key)), sum);
}

__device__ __forceinline__ void consume(const Arguments& args, const Barriers& barriers, u32 shared, i32 index) {
  Consumer consumer{args, barriers, shared, index};
  for (u32 number = first_number(); is_number(args, number); number = next_number(number)) {
    SharingTiles tiles(args, BiasTile(args, number));
    ScoreFragments sums = {};
    const bool any = tiles.any;
    while (tiles.any) {
      if (tiles.hides)
        consumer.add_tile<true>(tiles, sums);
      else
        consumer.add_tile<false>(tiles, sums);
    }
    const BiasTile tile(args, static_cast<u32>(opaque_i32(static_cast<i32>(number))));  // again, not through the loop
    char* const plane = static_cast<char*>(args.d_bias) + kBiasBytes * (tile.batch(args) * args.d_bias_stride_batch + tile.head(args) * args.d_bias_stride_head);
    const i32 first_key = tile.key_tile * kBlockKv;
    if (args.bias_rows > 1) {
      if (any) consumer.leave_bias();
      store_rows(args, plane, tile.row_tile * kBlockQ + consumer.first_row_of_warp() + static_cast<i32>(lane_index() / 4), first_key, sums);
    } else if (any) {
      store_sum_of_rows(args, consumer, plane, first_key, sums);
      consumer.leave_bias();
    } else {
      const i32 key = first_key + static_cast<i32>(thread_index() % kWarpgroup);
      if (index == 0 && key < args.${pair_keys}) store_element(plane + kBiasBytes * static_cast<i64>(key), 0);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) ${entry}(const __grid_constant__ Arguments args) {
  const u32 shared = shared_base();
  const Barriers barriers{shared + kBarrierOffset};
  const u32 warp = warp_index();
  if (thread_index() == 0) {
    prefetch_tensormap(args.q_map);
    prefetch_tensormap(args.k_map);
    prefetch_tensormap(args.d_o_map);
    prefetch_tensormap(args.v_map);
//% for pair_operands
    if (args.${pair_operands.name}_by_map) prefetch_tensormap(args.${pair_operands.name}_map);
//% end
    barriers.init();
  }
  bar_sync();
  if (warp < kWarpgroupWarps) {
    setmaxnreg_dec<kProducerRegisters>();
    if (thread_index() == 0) load_operands(args, barriers, shared);
    if (thread_index() == kWarpSize) load_pair_tiles(args, barriers, shared);
  } else {
    setmaxnreg_inc<kConsumerRegisters>();
    consume(args, barriers, shared, static_cast<i32>(warp / kWarpgroupWarps - 1));
  }
}
//% include primitives/entry/${target}
