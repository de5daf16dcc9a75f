//% include mma_sync/query_product

// Tiles of keys add to the sums of dQ in a fixed order, by tickets. The last tile that sees a block of queries begins, and each hands the ticket
// to the tile before it. A CTA hands it on one step after its adds, where there is a barrier anyway.
struct DqAccumulation {
  static constexpr bool kAdded = true;
  const Arguments& args;
  Sequence sequence;
  QueryProduct product;
  i32 tile;
  u32* tickets;    // of the sequence's blocks: how many tiles have added
  i32 added = -1;  // the block whose ticket is to be handed on

  // head is the query head, counted as workspaces have them.
  __device__ __forceinline__ DqAccumulation(const Arguments& args, const Sequence& sequence, i64 head, i32 tile, i32 warp, u32 shared)
      : args(args), sequence(sequence), product(args, head, first_block_of_queries<kBlockQ>(sequence), warp, shared), tile(tile),
        tickets(args.dq_tickets + head * blocks_of_queries<kBlockQ>(args) + first_block_of_queries<kBlockQ>(sequence)) {}

  // Tiles that add to a block before this one.
  __device__ __forceinline__ u32 ticket_of(i32 block) const {
    const i32 behind = (block + 1) * kBlockQ, last = (behind < query_count(args, sequence) ? behind : query_count(args, sequence)) - 1;
    return static_cast<u32>(last_key(args, sequence, last) / kBlockKv - tile);
  }
  // To be called before the barrier of all threads that precedes add().
  __device__ __forceinline__ void await_ticket(i32 block) const {
    if (thread_index() == 0) wait_acquire_gpu_global_u32(tickets + block, ticket_of(block));
  }
  __device__ __forceinline__ void add(i32 block) {
    product.add(block);
    added = block;
  }
  // To be called after a barrier of all threads that follows add(). The last warp does it, since the first one waits for tickets.
  __device__ __forceinline__ void pass_ticket() const {
    if (added >= 0 && thread_index() == kThreads - kWarpSize) st_release_gpu_global_u32(tickets + added, ticket_of(added) + 1);
  }
  __device__ __forceinline__ void finish() const {
    bar_sync();
    pass_ticket();
  }
};
