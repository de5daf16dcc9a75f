// The blocks of keys of a sequence follow each other in memory. Copies tile after tile of K or V, from block `begin` on.
struct KvStream : TileStream<kBlockKv, kEvenTiles, kThreads> {
  __device__ __forceinline__ KvStream(const Arguments& args, const Sequence& sequence, const char* head, i64 row_bytes, i32 begin)
      : TileStream(head + begin * kBlockKv * row_bytes, row_bytes, key_count(args, sequence) - begin * kBlockKv, thread_index()) {}
};
