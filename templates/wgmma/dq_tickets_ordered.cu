//% if shared_tickets
// Tiles of keys add to the sums of dQ in a fixed order, by tickets, one for kTicketBlocks blocks of queries. The last tile that sees any of these
// begins, and each hands the ticket to the tile before it when it has added to all of them that it sees.
//% else
// Tiles of keys add to the sums of dQ in a fixed order, by tickets. The last tile that sees a block of queries begins, and each hands the ticket
// to the tile before it.
//% end
struct DqTickets {
  const Arguments& args;
  const KeyTile& tile;
  u32* held = nullptr;  // the ticket of what was added last
  u32 number = 0;       // tiles that have added there before

  __device__ __forceinline__ DqTickets(const Arguments& args, const KeyTile& tile) : args(args), tile(tile) {}

  // To be called before the adds to a block of a head, counted as workspaces have them. Returns when all tiles behind this one have added.
  __device__ __forceinline__ void await(const QueryWalk& walk, i32 head, i32 block) {
//% if shared_tickets
    if (block != walk.blocks.begin && block % kTicketBlocks != 0) return;
    const i32 ticket = block / kTicketBlocks, behind = (ticket + 1) * kTicketBlocks * kBlockQ, tickets = ${tickets_of_head};
//% else
    const i32 ticket = block, behind = (block + 1) * kBlockQ, tickets = walk.blocks.all;
//% end
    const i32 last = (behind < query_count(args, tile.sequence) ? behind : query_count(args, tile.sequence)) - 1;
    number = static_cast<u32>(last_key(args, tile.sequence, last) / kBlockKv - tile.tile);
    held = args.dq_tickets + static_cast<i64>(head) * tickets + ${ticket_place};
    if (thread_index() == 0) wait_acquire_gpu_global_u32(held, number);
    bar_sync_named(kTickets, kWarpgroup);
  }
  // To be called when this thread has added to the block.
//% if shared_tickets
  __device__ __forceinline__ void pass(const QueryWalk& walk, i32 block) const {
    if (block + 1 != walk.blocks.end && (block + 1) % kTicketBlocks != 0) return;
//% else
  __device__ __forceinline__ void pass(const QueryWalk&, i32 /*block*/) const {
//% end
    bar_sync_named(kTickets, kWarpgroup);
    if (thread_index() == 0) st_release_gpu_global_u32(held, number + 1);
  }
};
