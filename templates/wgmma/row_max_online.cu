// row_max is the largest score so far or, with kRescaleThreshold, one less than that many powers of two below it. Whether a score of an unmasked
// block exceeds it by so much is seen from bits: those of positive floats are ordered like integers, of which Hopper finds the largest of three by
// one instruction, and a thread's own scores suffice. The largest score of a row is computed only where one does.
struct Softmax : OnlineSoftmax {
  static constexpr i32 kNone = -0x7fffffff - 1;
  float room;    // kRescaleThreshold powers of two, as a difference of scores
  i32 limit[2];  // bits of row_max + room; kNone, which all scores reach, where that is not positive

  template <bool kMasked>
  __device__ __forceinline__ void first(ScoreFragments& s) {
    must_scale = false;
    room = kRescaleThreshold / scale_log2;
    largest_of_thread(s, row_max);
    largest_of_quad(row_max);
    set_limit();
    exponentiate<kMasked>(s, row_sum);
    row_sum[0] = checked_sum(row_sum[0]);
    row_sum[1] = checked_sum(row_sum[1]);
  }

  template <bool kMasked>
  __device__ __forceinline__ void update(ScoreFragments& s) {
    must_scale = false;
    if (kMasked) {
      follow_largest<true>(s);
    } else {
      const i32 most[2] = {most_bits(s, 0), most_bits(s, 1)};
      if (vote_sync_any((most[0] >= limit[0]) | (most[1] >= limit[1]))) follow(s, most);
    }
    float sum[2];
    exponentiate<kMasked>(s, sum);
    row_sum[0] += checked_sum(sum[0]);
    row_sum[1] += checked_sum(sum[1]);
  }

 private:
  // The largest of this thread's scores of a row, if any is positive; otherwise something negative.
  __device__ __forceinline__ static i32 most_bits(const ScoreFragments& s, i32 half) {
    i32 most[2] = {bits_of(s[2 * half]), bits_of(s[2 * half + 1])};  // two chains: shorter
#pragma unroll
    for (i32 i = 4; i < kBlockKv / 2; i += 4) {
#pragma unroll
      for (i32 e = 0; e < 2; ++e) most[e] = most[e] > bits_of(s[i + 2 * half + e]) ? most[e] : bits_of(s[i + 2 * half + e]);
    }
    return most[0] > most[1] ? most[0] : most[1];
  }
  __device__ __forceinline__ static i32 bits_of(float x) { return static_cast<i32>(f32_to_bits(x)); }

  __device__ __forceinline__ void set_limit() {
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
      const float largest = row_max[half] + room;
      limit[half] = largest > 0 ? bits_of(largest) : kNone;
    }
  }

  // Some row of the warp has reached its limit.
  __device__ __forceinline__ void follow(const ScoreFragments& s, const i32 (&most)[2]) {
    if (vote_sync_any((limit[0] == kNone) | (limit[1] == kNone))) {
      follow_largest<false>(s);
      return;
    }
    float largest[2];
#pragma unroll
    for (i32 half = 0; half < 2; ++half) largest[half] = most[half] > 0 ? bits_to_f32(static_cast<u32>(most[half])) : 0;
    largest_of_quad(largest);
#pragma unroll
    for (i32 half = 0; half < 2; ++half) largest[half] = largest[half] > 0 ? largest[half] : row_max[half];
    raise_row_max<false>(largest);
    set_limit();
  }

  // By floating-point maxima, which do not ask for a limit in bits. One answer for the warp. -inf - -inf is NaN and compares false.
  template <bool kMasked>
  __device__ __forceinline__ void follow_largest(const ScoreFragments& s) {
    float largest[2];
    largest_of_thread(s, largest);
    const bool grows = ((largest[0] - row_max[0]) * scale_log2 > kRescaleThreshold) | ((largest[1] - row_max[1]) * scale_log2 > kRescaleThreshold);
    if (!vote_sync_any(grows)) return;
    largest_of_quad(largest);
    raise_row_max<kMasked>(largest);
    set_limit();
  }
};
