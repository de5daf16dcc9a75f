// The list of the tiles of keys that packed sequences have, in the workspace: whose they are, in the order in which CTAs take those of a head, and how many.
// kListedWords words each, of which the last ones are those of the first tile alone, or of none.
constexpr i32 kListedWords = ${listed_words}, kListedCount = 8;
__device__ __forceinline__ void store_listed_tile(u32* list, i32 place, const Sequence& sequence, i32 tile) {
  u32* const to = list + kListedWords * static_cast<i64>(place);
  st_global_v4_b32(to, {static_cast<u32>(tile), static_cast<u32>(sequence.batch), static_cast<u32>(sequence.first_query), static_cast<u32>(sequence.queries)});
  st_global_v4_b32(to + 4, {static_cast<u32>(sequence.stored_queries), static_cast<u32>(sequence.first_key), static_cast<u32>(sequence.keys),
                            static_cast<u32>(sequence.stored_keys)});
}
struct ListedTile {
  Sequence sequence;
  i32 tile;

  __device__ __forceinline__ ListedTile(const u32* list, i32 place) {
    const u32* const from = list + kListedWords * static_cast<i64>(place);
    const Vec4 first = ld_global_v4_b32(from), second = ld_global_v4_b32(from + 4);
    tile = static_cast<i32>(first.x);
    sequence.batch = static_cast<i32>(first.y);
    sequence.first_query = static_cast<i32>(first.z);
    sequence.queries = static_cast<i32>(first.w);
    sequence.stored_queries = static_cast<i32>(second.x);
    sequence.first_key = static_cast<i32>(second.y);
    sequence.keys = static_cast<i32>(second.z);
    sequence.stored_keys = static_cast<i32>(second.w);
  }
};
__device__ __forceinline__ i32 listed_tiles(const Arguments& args) { return static_cast<i32>(ld_global_v4_b32(args.key_tile_list + kListedCount).x); }
