// Tiles of keys add to the sums of dQ in a fixed order, by tickets. The last tile that sees a block of queries begins, and each hands the ticket
// to the tile before it.
struct DqTickets {
  const Arguments& args;
  const KeyTile& tile;
  u32* held = nullptr;  // the ticket of the block that was added last
  u32 number = 0;       // tiles that have added to that block before

  __device__ __forceinline__ DqTickets(const Arguments& args, const KeyTile& tile) : args(args), tile(tile) {}

  // To be called before the adds to a block of a head, counted through all batch entries. Returns when all tiles behind this one have added.
  __device__ __forceinline__ void await(const QueryWalk& walk, i32 head, i32 block) {
    const i32 behind = (block + 1) * kBlockQ, last = (behind < query_count(args, tile.sequence) ? behind : query_count(args, tile.sequence)) - 1;
    number = static_cast<u32>(last_key(args, tile.sequence, last) / kBlockKv - tile.tile);
    held = args.dq_tickets + static_cast<i64>(head) * walk.blocks.all + block;
    if (thread_index() == 0) wait_acquire_gpu_global_u32(held, number);
    bar_sync_named(kTickets, kWarpgroup);
  }
  // To be called when this thread has added.
  __device__ __forceinline__ void pass() const {
    bar_sync_named(kTickets, kWarpgroup);
    if (thread_index() == 0) st_release_gpu_global_u32(held, number + 1);
  }
};
