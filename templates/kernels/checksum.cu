// A word is four 16-bit elements, the first in the lowest bits, zeros beyond the last element:
//
//   checksum = Σ_i mix(word_i + (i + 1) kGoldenRatio)      modulo 2^64
//
// mix is one to one, so that no change of a single word goes unseen. A tile is ${elements_per_tile} elements; a CTA takes every kCtas-th of
// them and leaves the sum of its words.
//
// shared memory:   sums [kThreads]   ${shared_bytes} bytes

//% include primitives/mma_sync
//% include oracle/mix_bits

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kThreads = ${threads}, kCtas = ${max_ctas};
constexpr i32 kPairElements = 8;  // two words, 16 bytes
static_assert(kThreads * kPairElements == ${elements_per_tile} && kThreads * 8 == ${shared_bytes});
static_assert((kThreads & (kThreads - 1)) == 0, "reductions halve");

struct WordPair {
  u64 first, second;
};

// By its elements: of a range that is not aligned, and at its end.
__device__ __forceinline__ u64 gather_word(const Arguments& args, i64 first_element) {
  u64 word = 0;
  for (i32 i = 0; i < 4; ++i) {
    if (first_element + i < args.element_count) word |= static_cast<u64>(ld_global_b16(args.elements + first_element + i)) << 16 * i;
  }
  return word;
}

__device__ __forceinline__ WordPair load_pair(const Arguments& args, i64 first_element) {
  const bool aligned = reinterpret_cast<u64>(args.elements) % 16 == 0;
  if (!aligned || first_element + kPairElements > args.element_count) {
    return {gather_word(args, first_element), gather_word(args, first_element + 4)};
  }
  const Vec4 x = ld_global_v4_b32(args.elements + first_element);
  return {x.x | static_cast<u64>(x.y) << 32, x.z | static_cast<u64>(x.w) << 32};
}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
  u64 sum = 0;
  for (i64 pair = static_cast<i64>(block_index()) * kThreads + thread_index(); pair * kPairElements < args.element_count;
       pair += kCtas * kThreads) {
    const WordPair words = load_pair(args, pair * kPairElements);
    sum += mix_bits(words.first + (2 * static_cast<u64>(pair) + 1) * kGoldenRatio);
    // A word beyond the last element is none.
    if (pair * kPairElements + 4 < args.element_count) sum += mix_bits(words.second + (2 * static_cast<u64>(pair) + 2) * kGoldenRatio);
  }

  const u32 mine = shared_base() + thread_index() * 8;
  st_shared_b64(mine, sum);
  for (u32 half = kThreads / 2; half > 0; half /= 2) {
    bar_sync();
    if (thread_index() < half) st_shared_b64(mine, ld_shared_b64(mine) + ld_shared_b64(mine + half * 8));
  }
  if (thread_index() == 0) st_global_b64(static_cast<u64*>(args.partials) + block_index(), ld_shared_b64(mine));
}
//% include primitives/entry/${target}
