// row_max is the largest score so far or, with kRescaleThreshold, one less than that many powers of two below it. Whether a score exceeds it by so
// much a thread sees from its own scores: from their bits, where the limit is positive, for those of positive floats are ordered like integers, of
// which Hopper finds the largest of three by one instruction. The quad is asked for the largest score of a row only where one does.
struct Softmax : OnlineSoftmax {
  static constexpr i32 kNone = -0x7fffffff - 1;
  float room;    // kRescaleThreshold powers of two, as a difference of scores
  i32 limit[2];  // bits of row_max + room; kNone where that is not positive
  bool none;     // whether a row of the warp has no limit in bits

  template <bool kMasked>
  __device__ __forceinline__ void first(ScoreFragments& s) {
    must_scale = false;
    room = kRescaleThreshold / scale_log2;
    largest_of_thread(s, row_max);
    largest_of_quad(row_max);
    set_limit();
    float offset[2];
    find_offsets<kMasked>(offset);
    subtract_large_row_max(s, offset);
    exponentiate(s, offset, row_sum);
    row_sum[0] = checked_sum(row_sum[0]);
    row_sum[1] = checked_sum(row_sum[1]);
  }

//% if pair_tensors
  // kMayHide: any score may be -inf; kMasked: many are, as in a block that a diagonal crosses.
  template <bool kMayHide, bool kMasked>
//% else
  template <bool kMasked>
//% end
  __device__ __forceinline__ void update(ScoreFragments& s) {
    must_scale = false;
    float largest[2];  // of a row that does not reach its limit it may be anything below
    float offset[2];
    find_offsets<${hides}>(offset);
    bool reaches = is_large(offset);
    if (kMasked || none) {
      largest_of_thread(s, largest);  // -inf - -inf is NaN and compares false
#pragma unroll
      for (i32 half = 0; half < 2; ++half) reaches |= (largest[half] - row_max[half]) * scale_log2 > kRescaleThreshold;
    } else {
#pragma unroll
      for (i32 half = 0; half < 2; ++half) {
        const i32 most = most_bits(s, half);
        reaches |= most >= limit[half];
        largest[half] = bits_to_f32(static_cast<u32>(most));
      }
    }
    if (vote_sync_any(reaches)) {
      largest_of_quad(largest);
      raise_row_max<${hides}>(largest);
      set_limit();
      find_offsets<${hides}>(offset);
      subtract_large_row_max(s, offset);
    }
    float sum[2];
    exponentiate(s, offset, sum);
    row_sum[0] += checked_sum(sum[0]);
    row_sum[1] += checked_sum(sum[1]);
  }

//% if alibi_beyond
  // From here on scores are larger by so much.
  __device__ __forceinline__ void move(const float (&by)[2]) {
    row_max[0] += by[0];
    row_max[1] += by[1];
    set_limit();
  }

//% end
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
    none = vote_sync_any((limit[0] == kNone) | (limit[1] == kNone));
  }
};
