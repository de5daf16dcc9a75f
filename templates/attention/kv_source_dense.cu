// Where a block of keys lies: a sequence's blocks follow each other. Copies tile after tile of K or V, from block `begin` on.
struct KvStream : TileStream<kBlockKv, kEvenTiles, kThreads> {
  __device__ __forceinline__ KvStream(const Arguments& args, const Sequence& sequence, const char* head, i64 row_bytes, i32 begin)
      : TileStream(head + begin * kBlockKv * row_bytes, row_bytes, sequence.keys(args) - begin * kBlockKv, thread_index()) {}
};
