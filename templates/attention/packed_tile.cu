// A tile of queries of packed sequences: where it is in its sequence, and the heads that it is of.
struct PackedTile {
  TileIndex index;
  Sequence sequence;

  PackedTile() = default;
  // of_all: among the tiles of all sequences.
  __device__ __forceinline__ PackedTile(const Arguments& args, TileIndex of_all) {
    const TileOfSequence found(args.cu_seqlens_q, args.batch, args.seq_q, of_all.tile, ${tile_positions});
    index = {found.tile, of_all.batch_head};
    sequence = Sequence(args, found.batch);
  }
};
