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
  u32 number = 0;
  for (u32 plane = 0; plane < 2; ++plane) {
    const Counter drawn = philox({of_head.low ^ of_query, of_head.high ^ of_key ^ plane << 31}, static_cast<u32>(seed), 7);
    number = number << 8 | ((key % 16 < 8 ? drawn.low : drawn.high) >> (key % 2 * 16 + query % 16 / 8 * 8) & 0xffu);
  }
  // Eight bits where they give what is asked for, and the rest, within two hundredths.
  const double asked = static_cast<double>(args.dropout), eighth = static_cast<double>(static_cast<i32>(256 * asked + 0.5));
  const double off = eighth > 256 * asked ? eighth / 256 - asked : asked - eighth / 256;
  if (eighth < 256 && off <= 0.02 * asked && off <= 0.02 * (1 - asked)) return number / 256 < static_cast<u32>(eighth) ? 0 : 256 / (256 - eighth);
  const double sixteenth = static_cast<double>(static_cast<i32>(65536 * asked + 0.5)), dropped = sixteenth < 65535 ? sixteenth : 65535;
  return number < static_cast<u32>(dropped) ? 0 : 65536 / (65536 - dropped);
}
