// Which elements of P dropout keeps. Query i and key j of a sequence, of head n of all batch entries, have a random byte: number 2·(j % 2) + i % 16 / 8 of
// word j % 16 / 8 of
//
//   philox7((h0 ^ (32·(i / 16) + 4·(i % 8) + j % 8 / 2), h1 ^ j / 16), seed)
//   h = philox10((a0 ^ n, a1), seed)     a = philox10(offset, seed >> 32)
//
// where philoxR(counter, key) is Philox2x32 of R rounds (Salmon, Moraes, Dror, Shaw 2011), and counters begin with their lower half. No tile, config or pass
// has a say in it, and later releases draw the same. An element is kept if its byte is not below a threshold: 256 times the probability, rounded down or up. It is
// up if the second half of the counter after six rounds is below dropout_part, so that the probability is exact.
//
// So a lane of a warp that has 16 queries and 16 keys as fragments hold them draws for the eight elements that it has.
constexpr u32 kPhiloxFactor = 0xd256d193u, kPhiloxKeyStep = 0x9e3779b9u;
__device__ __forceinline__ void philox_round(u32& x, u32& y, u32 key) {
  const u64 product = static_cast<u64>(x) * kPhiloxFactor;
  x = static_cast<u32>(product >> 32) ^ key ^ y;
  y = static_cast<u32>(product);
}
template <i32 kRounds>
__device__ __forceinline__ void philox(u32& x, u32& y, u32 key) {
#pragma unroll
  for (i32 round = 0; round < kRounds; ++round) philox_round(x, y, key + static_cast<u32>(round) * kPhiloxKeyStep);
}

// What the numbers of a head are drawn from.
struct HeadDropout {
  u32 queries, keys, key;  // h0, h1, seed

  HeadDropout() = default;
  __device__ __forceinline__ HeadDropout(const Arguments& args, i32 batch, i32 head) {
    u64 seed = args.dropout_seed, offset = args.dropout_offset;
    if (args.dropout_state != nullptr) {
      seed = ld_global_b64(args.dropout_state);
      offset += ld_global_b64(args.dropout_state + 1);
    }
    queries = static_cast<u32>(offset);
    keys = static_cast<u32>(offset >> 32);
    key = static_cast<u32>(seed);
    philox<10>(queries, keys, static_cast<u32>(seed >> 32));
    queries ^= static_cast<u32>(batch * args.heads_q + head);
    philox<10>(queries, keys, key);
  }
//% if dropout_shared

  // Leaves it for its warp in shared memory, since registers are short, and takes it from there.
  __device__ __forceinline__ void put(u32 place) const {
    bar_warp_sync();  // all lanes have taken what was there
    if (lane_index() == 0) st_shared_v4_b32(place, Vec4{queries, keys, key, 0});
    bar_warp_sync();
  }
  __device__ __forceinline__ explicit HeadDropout(u32 place) {
    const Vec4 words = ld_shared_v4_b32(place);
    queries = words.x;
    keys = words.y;
    key = words.z;
  }
//% end
};

// In bit 7 of each byte: whether the bytes are not below those of a threshold, of whose lower bits, and highest one, the arguments tell. Lower bits of 0x80 are one
// more than all of them.
__device__ __forceinline__ u32 not_below(u32 bytes, u32 lower_bits, u32 join) {
  const u32 apart = (bytes | 0x80808080u) - lower_bits;
  return (apart & bytes) | (join & (apart | bytes));
}

// What is kept of a lane's elements: a word for the first or the other eight of 16 rows that a fragment's pairs lie in (of keys, where pairs are of two keys for a
// query), in whose bytes, in bit 7, both elements of a pair alternate for the first and the other eight of what the pairs are of.
struct KeptElements {
  u32 words[2];

  // The elements that are kept of a pair, in 16 bits each; the others are 0.
  __device__ __forceinline__ u32 of_pair(u32 pair, i32 word, i32 half) const { return pair & mask(word, half); }
  // All elements; the sign of those that are not kept is set.
  __device__ __forceinline__ u32 signs_of_pair(u32 pair, i32 word, i32 half) const { return pair | (~mask(word, half) & 0x80008000u); }
  __device__ __forceinline__ bool has(i32 word, i32 half, i32 element) const { return (words[word] & (0x80u << (16 * element + 8 * half))) != 0; }

 private:
  // prmt copies bytes, or with bit 3 of a selector what their highest bit is.
  __device__ __forceinline__ u32 mask(i32 word, i32 half) const { return prmt_b32(words[word], words[word], half == 0 ? 0xaa88u : 0xbb99u); }
};

// x, y: a counter of which `rounds` are still to come, with the round key.
template <i32 kRounds>
__device__ __forceinline__ KeptElements kept_elements(const Arguments& args, u32 x, u32 y, u32 key) {
  KeptElements kept;
  philox<kRounds - 1>(x, y, key);
  const u32 lower_bits = args.dropout_bytes + (y < static_cast<u32>(args.dropout_part) ? 0x01010101u : 0u);
  philox_round(x, y, key + (kRounds - 1) * kPhiloxKeyStep);
  kept.words[0] = not_below(x, lower_bits, args.dropout_join);
  kept.words[1] = not_below(y, lower_bits, args.dropout_join);
  return kept;
}
