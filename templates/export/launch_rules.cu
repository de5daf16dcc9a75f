// What a launch is made of for a problem: the arithmetic of grids, parts of keys, sections of heads and workspaces. Plain numbers; 64-bit integers,
// so that no product of valid sizes overflows.

constexpr std::int64_t kMostCtas = 2147483647;                      // of a grid
constexpr std::int64_t kLengthLimit = (std::int64_t{1} << 31) - 1024;  // rounding a length up to a tile must stay within int32
constexpr std::int64_t kHeadsLimit = std::int64_t{1} << 31;         // of batch * heads_q
// The limit of a tensor: far beyond any GPU's address space, and its bytes in fp32 are far from where an int64 ends.
constexpr std::int64_t kElementsLimit = std::int64_t{1} << 50;
constexpr std::int64_t kOpenDiagonal = std::int64_t{1} << 40;       // of a mask's side that hides nothing
constexpr std::int64_t kWorkspaceAlignment = 256;                   // bytes: of a workspace and of each buffer in it
constexpr std::int64_t kRowAlignment = 16;                          // bytes: of rows that are copied whole, and of strides in tensor maps
constexpr std::int64_t kMostStrideBytes = std::int64_t{1} << 40;    // tensor maps take no longer ones
constexpr float kLog2E = 1.44269504088896340736f;

// A call's sizes. Query i may see the keys j with first_diagonal <= j - i <= last_diagonal.
struct Call {
  std::int64_t batch, heads_q, heads_kv, seq_q, seq_kv;
  std::int64_t first_diagonal, last_diagonal;
  float softmax_scale;
  float softcap;  // 0: none
  bool diagonals_move;  // with the ends of sequences that have fewer rows
  bool packed = false;  // the sequences, `batch` of them, lie one behind the other in tensors of seq_q and seq_kv rows
  std::int64_t bias_batch = 1, bias_heads = 1, bias_rows = 1;  // of a bias; 1 along which it repeats
  std::int64_t attention_mask_batch = 1, attention_mask_heads = 1, attention_mask_rows = 1;
  std::int64_t max_seq_q = 0, max_seq_kv = 0;  // of packed sequences with tensors of pairs, for which these have elements; 0: all rows
  float dropout = 0;  // the probability that is asked for
};

// Into how many parts the keys of a tile of queries are split: a fixed number, or as many as leave least of the slots idle. The queries of a tile of
// keys are split into a fixed number.
struct Split {
  int parts;               // kFill: as many as the rest says; kFixed: of least_keys keys each, from the first key on
  int slots;               // CTAs (or clusters of them) that the GPU holds at once
  int tile_queries;        // of a tile
  int tile_heads;          // query heads of a tile
  int least_keys;          // of a part, as far as a tile has so many
  std::int64_t most_rows;  // of all parts together: rows of results that the workspace holds
};
constexpr int kFill = 0, kFixed = -1, kMostParts = 64;

// What tiles are rows of: queries of a query head; keys of a key/value head; all queries of a head, in one batch entry or in all; queries of all heads, one
// after the other; queries and keys of each plane of a bias.
enum class Rows { queries, keys, all, of_batch, following, pairs };

struct Launch {
  Rows rows;
  int rows_per_tile;            // a cluster takes one as a whole
  int heads_per_tile;           // query heads whose rows a tile holds
  bool kv_grad_per_query_head;  // each query head has its own tiles of the keys that its group shares
  int cluster;                  // CTAs of a cluster
  int max_ctas;                 // of the grid; 0: a CTA for each tile
  std::int64_t section_bytes;   // of a section of heads, whose tiles follow each other
  int section_tiles;            // of keys, of a section at most; 0: any number
  int head_dim, element_bytes;
  Split split;
};

// `bytes` for each `rows` queries of each query head and batch entry, or keys of each key/value head; once for each part of the keys. With `keys` instead for
// each `rows` queries and `keys` keys of each plane of the attention mask. Where `rows` is kOnce: `bytes`, whatever the call.
constexpr std::int64_t kOnce = 0;
struct Buffer {
  std::int64_t bytes, rows;
  bool of_keys;
  Split split;
  std::int64_t keys = kOnce;
};

inline std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }
inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return ceil_div(value, multiple) * multiple; }

// Parts of `tiles` tiles, all equally long, that fill the slots: of one wave, or of a few where one would leave many slots idle.
inline std::int64_t filling_parts(std::int64_t tiles, std::int64_t slots) {
  constexpr int kMostWaves = 4;             // that parts may take: more of them are shorter, and fill the last one better
  constexpr double kShareOfBestFill = 0.9;  // of the slots' time: fewer waves that come so near are taken
  const auto parts_in = [&](std::int64_t waves) { return waves * slots / tiles; };
  const auto fill_of = [&](std::int64_t waves) {
    return static_cast<double>(parts_in(waves) * tiles) / static_cast<double>(waves * slots);
  };
  if (fill_of(1) >= kShareOfBestFill) return parts_in(1);  // each call asks
  double best = 0;
  for (int waves = 1; waves <= kMostWaves; ++waves) best = std::max(best, fill_of(waves));
  for (int waves = 1; waves < kMostWaves; ++waves) {
    if (fill_of(waves) >= kShareOfBestFill * best) return parts_in(waves);
  }
  return parts_in(kMostWaves);
}

// A call of as many sequences of equal lengths as packed ones, each in a batch entry of its own.
inline Call with_equal_lengths(Call call) {
  if (!call.packed) return call;
  const std::int64_t queries = ceil_div(call.seq_q, call.batch), keys = ceil_div(call.seq_kv, call.batch);
  if (call.diagonals_move) {
    const std::int64_t moved = call.seq_kv - call.seq_q - (keys - queries);
    call.first_diagonal -= moved;
    call.last_diagonal -= moved;
  }
  call.seq_q = queries;
  call.seq_kv = keys;
  call.packed = false;
  return call;
}

// Keys that a tile sees at most: those of its band, as far as any query sees them.
inline std::int64_t most_keys(const Call& call, int tile_queries) {
  const auto clamped = [&](std::int64_t key) { return std::clamp<std::int64_t>(key, 0, call.seq_kv); };
  const std::int64_t band = call.last_diagonal - call.first_diagonal + tile_queries;
  const std::int64_t seen = clamped(call.seq_q + call.last_diagonal) - clamped(call.first_diagonal);
  return std::max<std::int64_t>(0, std::min(band, seen));
}

// At least 1 and, where they fill the device, at most kMostParts. Some of them may have no keys.
inline std::int64_t parts_of(const Split& split, const Call& call) {
  if (split.parts == kFixed) return ceil_div(call.seq_kv, split.least_keys);
  if (split.parts != kFill) return split.parts;
  const Call equal = with_equal_lengths(call);
  const std::int64_t heads = equal.batch * equal.heads_q, rows = heads * equal.seq_q;
  const std::int64_t tiles = heads / split.tile_heads * ceil_div(equal.seq_q, split.tile_queries);
  const std::int64_t most =
      std::min({most_keys(equal, split.tile_queries) / split.least_keys, split.most_rows / rows, std::int64_t{kMostParts}});
  return std::max<std::int64_t>(1, std::min(filling_parts(tiles, split.slots), most));
}

// Queries and keys for which tensors of pairs have elements.
inline std::int64_t pair_queries(const Call& call) { return call.max_seq_q > 0 ? call.max_seq_q : call.seq_q; }
inline std::int64_t pair_keys(const Call& call) { return call.max_seq_kv > 0 ? call.max_seq_kv : call.seq_kv; }

// Batch entries of tensors that have rows.
inline std::int64_t row_batch(const Call& call) { return call.packed ? 1 : call.batch; }

// Tiles of so many rows of a head. Of packed sequences as many as are enough whatever their lengths: one more for each.
inline std::int64_t tiles_of_rows(const Call& call, std::int64_t all, std::int64_t rows) { return call.packed ? all / rows + call.batch : ceil_div(all, rows); }
inline std::int64_t query_tiles_of(const Launch& launch, const Call& call) { return tiles_of_rows(call, call.seq_q, launch.rows_per_tile); }
inline std::int64_t key_tiles_of(const Launch& launch, const Call& call) {
  if (launch.rows == Rows::pairs) return ceil_div(pair_keys(call), launch.rows_per_tile);
  return tiles_of_rows(call, call.seq_kv, launch.rows_per_tile);
}

// Rows of a head that lie together: of packed sequences those of one of equal length.
inline std::int64_t rows_of_sequence(const Call& call, std::int64_t all) { return call.packed ? ceil_div(all, call.batch) : all; }

// The heads of sections, half of `fit` to `fit`, whose last one holds most. With few heads in it, its longest tiles would begin when little
// else is left to do, and end alone.
inline std::int64_t fullest_last_section(std::int64_t heads, std::int64_t fit) {
  std::int64_t best = fit;
  double most = 0;
  for (std::int64_t size = (fit + 1) / 2; size <= fit; ++size) {
    const std::int64_t last = (heads - 1) % size + 1;
    const double fill = static_cast<double>(last) + static_cast<double>(last) / static_cast<double>(size);
    if (fill < most) continue;
    best = size;
    most = fill;
  }
  return best;
}

// Heads of a section, counted as tiles count them: sections of equal size whose K and V (for tiles of keys: Q, dO and fp32 dQ of one query head
// of each group, or a part of it) take at most section_bytes and that have at most section_tiles tiles of keys, or one head's each. Packed sequences
// of a head come one after the other: as much of each section is read at a time as one of them has.
inline std::int64_t section_heads_of(const Launch& launch, const Call& call) {
  // Heads that no section divides: those that share K and V, or, apart, each of them.
  const bool of_keys = launch.rows == Rows::keys;
  // Each part of the queries counts as a head.
  const std::int64_t parts = of_keys ? parts_of(launch.split, call) : 1;
  const std::int64_t whole_heads = row_batch(call) * (launch.kv_grad_per_query_head ? call.heads_q : call.heads_kv) * parts;
  // Tiles of keys that begin together walk through the query heads of their group in step: one of these is in L2.
  const std::int64_t element_bytes = 2 * launch.element_bytes + (of_keys ? static_cast<int>(sizeof(float)) : 0);
  const std::int64_t queries = rows_of_sequence(call, call.seq_q), keys = rows_of_sequence(call, call.seq_kv);
  const std::int64_t head_bytes = std::max<std::int64_t>(1, of_keys ? ceil_div(queries, parts) : keys) * launch.head_dim * element_bytes;
  // No more of a long sequence's K and V is read at a time than its tiles that run at once walk through.
  const std::int64_t walked = call.packed && !of_keys ? 2 : 1;
  std::int64_t fit = std::max<std::int64_t>(1, walked * launch.section_bytes / head_bytes);
  // Were more tiles of keys in a section than run at once, the last of a head would begin when its first have ended.
  if (of_keys && launch.section_tiles > 0) fit = std::clamp<std::int64_t>(launch.section_tiles / std::max<std::int64_t>(1, ceil_div(keys, launch.rows_per_tile)), 1, fit);
  if (of_keys) return whole_heads <= fit ? whole_heads : fullest_last_section(whole_heads, fit);
  const std::int64_t sections = ceil_div(whole_heads, fit), group = call.heads_q / call.heads_kv;
  return ceil_div(whole_heads, sections) * (group / launch.heads_per_tile);
}

inline std::int64_t heads_of_tiles(const Launch& launch, const Call& call) {
  if (launch.rows == Rows::pairs) return call.bias_batch * call.bias_heads;
  if (launch.rows == Rows::of_batch) return call.heads_q;
  return launch.rows == Rows::keys && !launch.kv_grad_per_query_head ? row_batch(call) * call.heads_kv
                                                                     : row_batch(call) * call.heads_q / launch.heads_per_tile;
}
inline std::int64_t tiles_of_head(const Launch& launch, const Call& call) {
  if (launch.rows == Rows::all || launch.rows == Rows::of_batch) return 1;
  if (launch.rows == Rows::pairs) return ceil_div(call.bias_rows, launch.rows_per_tile) * key_tiles_of(launch, call);
  return launch.rows == Rows::keys ? key_tiles_of(launch, call) : query_tiles_of(launch, call);
}

// Kernels count the rows of packed heads, and their tiles, in int32.
inline bool has_too_many_packed_rows(const Launch& launch, const Call& call) {
  return launch.rows != Rows::following && launch.heads_per_tile > 1 &&
         tiles_of_head(launch, call) > kMostCtas / launch.heads_per_tile / launch.rows_per_tile;
}

// The tiles of all heads and batch entries, times the parts of their keys or queries; kTooManyTiles if a grid has not so many CTAs.
constexpr std::int64_t kTooManyTiles = -1;
inline std::int64_t tiles_of(const Launch& launch, const Call& call) {
  if (launch.rows == Rows::following) return ceil_div(row_batch(call) * call.heads_q * call.seq_q, launch.rows_per_tile);
  const std::int64_t heads = heads_of_tiles(launch, call), tiles = tiles_of_head(launch, call), parts = parts_of(launch.split, call);
  if (heads > kMostCtas || tiles > kMostCtas / launch.cluster / parts / heads) return kTooManyTiles;
  return tiles * heads * parts;
}
// CTAs in x.
inline std::int64_t grid_of(const Launch& launch, const Call& call) {
  const std::int64_t all = tiles_of(launch, call) * launch.cluster;
  return launch.max_ctas > 0 ? std::min<std::int64_t>(all, launch.max_ctas) : all;
}

inline std::int64_t bytes_of(const Buffer& buffer, const Call& call) {
  if (buffer.rows == kOnce) return buffer.bytes;
  if (buffer.keys != kOnce) {
    const std::int64_t planes = call.attention_mask_batch * call.attention_mask_heads;
    return buffer.bytes * planes * ceil_div(pair_queries(call), buffer.rows) * ceil_div(pair_keys(call), buffer.keys);
  }
  const std::int64_t heads = row_batch(call) * (buffer.of_keys ? call.heads_kv : call.heads_q);
  return buffer.bytes * heads * tiles_of_rows(call, buffer.of_keys ? call.seq_kv : call.seq_q, buffer.rows) * parts_of(buffer.split, call);
}

// Lengths have 31 bits, so that an offset beyond them hides all keys or none, as its nearest 32-bit value does.
inline std::int64_t clamped_offset(std::int64_t offset) {
  return std::clamp<std::int64_t>(offset, -kMostCtas - 1, kMostCtas);
}

// What kernels compute with, by its name.
inline std::int64_t batch_of(const Launch&, const Call& call) { return call.batch; }
inline std::int64_t heads_q_of(const Launch&, const Call& call) { return call.heads_q; }
inline std::int64_t heads_kv_of(const Launch&, const Call& call) { return call.heads_kv; }
inline std::int64_t group_size_of(const Launch&, const Call& call) { return call.heads_q / call.heads_kv; }
inline std::int64_t bias_batch_of(const Launch&, const Call& call) { return call.bias_batch; }
inline std::int64_t bias_heads_of(const Launch&, const Call& call) { return call.bias_heads; }
inline std::int64_t bias_rows_of(const Launch&, const Call& call) { return call.bias_rows; }
inline std::int64_t attention_mask_batch_of(const Launch&, const Call& call) { return call.attention_mask_batch; }
inline std::int64_t attention_mask_heads_of(const Launch&, const Call& call) { return call.attention_mask_heads; }
inline std::int64_t attention_mask_rows_of(const Launch&, const Call& call) { return call.attention_mask_rows; }
inline std::int64_t max_seq_q_of(const Launch&, const Call& call) { return pair_queries(call); }
inline std::int64_t max_seq_kv_of(const Launch&, const Call& call) { return pair_keys(call); }
inline std::int64_t seq_q_of(const Launch&, const Call& call) { return call.seq_q; }
inline std::int64_t seq_kv_of(const Launch&, const Call& call) { return call.seq_kv; }
inline std::int64_t first_offset_of(const Launch&, const Call& call) { return clamped_offset(call.first_diagonal); }
inline std::int64_t mask_offset_of(const Launch&, const Call& call) { return clamped_offset(call.last_diagonal); }
inline std::int64_t diagonals_move_of(const Launch&, const Call& call) { return call.diagonals_move ? 1 : 0; }
inline float softmax_scale_of(const Launch&, const Call& call) { return call.softmax_scale; }
inline float softcap_of(const Launch&, const Call& call) { return call.softcap; }
// With a softcap kernels compute with its tanh, of which softmax takes the exponentials of so many times as much.
inline float softmax_scale_log2_of(const Launch&, const Call& call) { return (call.softcap != 0 ? call.softcap : call.softmax_scale) * kLog2E; }
// Multiplies q·k before the tanh.
inline float tanh_scale_of(const Launch&, const Call& call) { return call.softmax_scale / call.softcap; }
inline std::int64_t key_parts_of(const Launch& launch, const Call& call) { return parts_of(launch.split, call); }

// A tile's rows beyond the only row of a tensor have addresses too, which are aligned only if no stride of its own moves them.
inline std::int64_t stride_argument(std::int64_t stride, std::int64_t extent) { return extent > 1 ? stride : 0; }

// The stride of a dimension of extent 1 says nothing and may be odd.
inline std::int64_t map_stride_bytes(std::int64_t stride, std::int64_t extent, std::int64_t element_bytes) {
  return extent > 1 ? stride * element_bytes : kRowAlignment;
}

// Whether rows that are this far apart, or heads, or batch entries, start at multiples of 16 bytes. Tensor maps take no negative strides.
inline bool is_aligned_stride(std::int64_t stride, std::int64_t extent, std::int64_t element_bytes) {
  return extent == 1 ||
         (stride % (kRowAlignment / element_bytes) == 0 && stride >= 0 && stride < kMostStrideBytes / element_bytes);
}
