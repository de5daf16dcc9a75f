// A tile of one plane of the bias, for a CTA: kBlockQ queries and kBlockKv keys; of a bias that repeats along the queries all of these. Those of a plane follow
// each other, so that those in flight share operands in L2.
struct BiasTile {
  i32 row_tile, key_tile, plane;

  __device__ __forceinline__ BiasTile(const Arguments& args, u32 number) {
    const u32 key_tiles = static_cast<u32>(args.key_tiles), row_tiles = static_cast<u32>((args.bias_rows + kBlockQ - 1) / kBlockQ);
    key_tile = static_cast<i32>(number % key_tiles);
    row_tile = static_cast<i32>(number / key_tiles % row_tiles);
    plane = static_cast<i32>(number / key_tiles / row_tiles);
  }
  // Those of the bias; 0 along which it repeats.
  __device__ __forceinline__ i32 batch(const Arguments& args) const { return args.bias_batch == 1 ? 0 : plane / args.bias_heads; }
  __device__ __forceinline__ i32 head(const Arguments& args) const { return args.bias_heads == 1 ? 0 : plane % args.bias_heads; }
};

// The tiles of S that share one of the bias, one after the other: of one batch entry or of all, of one head or of all, of one row of tiles or of all.
struct ScoreTiles {
  i32 batch, head, row_tile, key_tile;  // of the one that is worked on

  __device__ __forceinline__ ScoreTiles(const Arguments& args, const BiasTile& tile)
      : batch(tile.batch(args)), head(tile.head(args)), row_tile(tile.row_tile), key_tile(tile.key_tile) {}
  // Goes on to one in which some query sees some key, from this one on; false if there is none.
  __device__ __forceinline__ bool find(const Arguments& args) {
    while (batch < args.batch) {
      if (has_pairs(args)) return true;
      advance(args);
    }
    return false;
  }
  __device__ __forceinline__ bool next(const Arguments& args) {
    advance(args);
    return differ(args) ? find(args) : batch < args.batch;
  }
  // Whether one of these tiles may see other pairs than the next one.
//% if short_sequences
  __device__ __forceinline__ static bool differ(const Arguments&) { return true; }
//% else
  __device__ __forceinline__ static bool differ(const Arguments& args) { return args.bias_rows == 1; }
//% end

 private:
  __device__ __forceinline__ void advance(const Arguments& args) {
    if (args.bias_rows == 1) {
      if (++row_tile < (queries_of_batch(args, batch) + kBlockQ - 1) / kBlockQ) return;
      row_tile = 0;
    }
    if (args.bias_heads == 1) {
      if (++head < args.heads_q) return;
      head = 0;
    }
    batch = args.bias_batch == 1 ? batch + 1 : args.batch;
  }
  __device__ __forceinline__ bool has_pairs(const Arguments& args) const {
    const Sequence sequence(args, batch);
    const i32 first = row_tile * kBlockQ, queries = query_count(args, sequence);
    if (first >= queries) return false;
    const KeyBlocks blocks(args, sequence, first, (queries - first > kBlockQ ? first + kBlockQ : queries) - 1);
    return blocks.begin <= key_tile && key_tile < blocks.end;
  }
};
