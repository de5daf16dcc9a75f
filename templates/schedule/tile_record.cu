// What a tile is, in shared memory. To find it out takes loads that wait for each other. Consumers read it at the tile's begin and again when they store
// results: that takes the first words alone.
constexpr u32 kTileRecordBytes = 32;
__device__ __forceinline__ void store_tile_record(u32 record, const PackedTile& placed) {
  const Sequence& sequence = placed.sequence;
  st_shared_v4_b32(record, {static_cast<u32>(placed.index.tile), static_cast<u32>(placed.index.batch_head), static_cast<u32>(sequence.first_query),
                            static_cast<u32>(sequence.stored_queries)});
  st_shared_v4_b32(record + 16, {static_cast<u32>(sequence.batch), static_cast<u32>(sequence.queries), static_cast<u32>(sequence.first_key),
                                 static_cast<u32>(sequence.keys)});
}
__device__ __forceinline__ PackedTile load_stored_tile(u32 record) {
  const Vec4 words = ld_shared_v4_b32(record);
  PackedTile placed{};
  placed.index = {static_cast<i32>(words.x), static_cast<i32>(words.y)};
  placed.sequence.first_query = static_cast<i32>(words.z);
  placed.sequence.stored_queries = static_cast<i32>(words.w);
//% if alibi
  placed.sequence.batch = static_cast<i32>(ld_shared_b32(record + 16));
//% end
  return placed;
}
__device__ __forceinline__ PackedTile load_tile_record(u32 record) {
  PackedTile placed = load_stored_tile(record);
  const Vec4 words = ld_shared_v4_b32(record + 16);
  placed.sequence.batch = static_cast<i32>(words.x);
  placed.sequence.queries = static_cast<i32>(words.y);
  placed.sequence.first_key = static_cast<i32>(words.z);
  placed.sequence.keys = static_cast<i32>(words.w);
  return placed;
}
