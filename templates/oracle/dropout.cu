// What an element of P counts under dropout: 0, or one over the share that is kept. docs/dropout.md says which are: said here once more, apart from what the
// kernels say. n: the head, counted through all batch entries.
struct Counter {
  u32 low, high;
};
__device__ __forceinline__ Counter philox(Counter counter, u32 key, i32 rounds) {
  for (i32 round = 0; round < rounds; ++round, key += 0x9e3779b9u) {
    const u64 product = static_cast<u64>(counter.low) * 0xd256d193u;
    counter = {static_cast<u32>(product >> 32) ^ key ^ counter.high, static_cast<u32>(product)};
  }
  return counter;
}

__device__ __forceinline__ double kept_share(const Arguments& args, i64 n, i32 query, i32 key) {
  u64 seed = args.dropout_seed, offset = args.dropout_offset;
  if (args.dropout_state != nullptr) {
    seed = ld_global_b64(args.dropout_state);
    offset += ld_global_b64(args.dropout_state + 1);
  }
  const Counter of_call = philox({static_cast<u32>(offset), static_cast<u32>(offset >> 32)}, static_cast<u32>(seed >> 32), 10);
  const Counter of_head = philox({of_call.low ^ static_cast<u32>(n), of_call.high}, static_cast<u32>(seed), 10);
  const u32 of_query = static_cast<u32>(query / 16 * 32 + query % 8 * 4 + key % 8 / 2), of_key = static_cast<u32>(key / 16);
  const Counter counter = {of_head.low ^ of_query, of_head.high ^ of_key};
  const Counter before = philox(counter, static_cast<u32>(seed), 6), drawn = philox(counter, static_cast<u32>(seed), 7);
  const u32 byte = (key % 16 < 8 ? drawn.low : drawn.high) >> (key % 2 * 16 + query % 16 / 8 * 8) & 0xffu;
  const double asked = static_cast<double>(args.dropout), in_bytes = 256 * asked;
  const u32 lower = static_cast<u32>(in_bytes);
  const double part = (in_bytes - static_cast<double>(lower)) * 0x1p32;
  return byte < lower + (static_cast<double>(before.high) < static_cast<double>(static_cast<u32>(part)) ? 1u : 0u) ? 0 : 1 / (1 - asked);
}
