//% include attention/alibi

//% if invariant
// What the scores of a query's keys gain by ALiBi, by the distance of a key from the key `from`: the same bits wherever the key lies in its block.
struct AlibiKeys {
  float slope, from_diagonal;

  __device__ __forceinline__ AlibiKeys(float slope, float /*side*/, i32 diagonal, i32 from)
      : slope(slope), from_diagonal(static_cast<float>(from - diagonal)) {}
  template <bool kEither>
  __device__ __forceinline__ float of(i32 distance) const { return -slope * abs_f32(from_diagonal + static_cast<float>(distance)); }
};
//% else
// What the scores of a query's keys gain by ALiBi, and slope·(diagonal - origin) in addition, which its softmax does not see; by the distance of a key
// from the key `from`. Up to the diagonal that grows evenly from the origin on.
struct AlibiKeys {
  float slope, growth, from_origin, from_diagonal, of_diagonal;

  // side: 1, or -1 where what is evenly is what lies beyond the diagonal: then it falls from the origin on, and has that much less.
  __device__ __forceinline__ AlibiKeys(float slope, float side, i32 diagonal, i32 origin, i32 from)
      : slope(slope), growth(side * slope), from_origin(growth * static_cast<float>(from - origin)), from_diagonal(static_cast<float>(from - diagonal)),
        of_diagonal(growth * static_cast<float>(diagonal - origin)) {}
  __device__ __forceinline__ AlibiKeys(float slope, float side, i32 diagonal, i32 from) : AlibiKeys(slope, side, diagonal, diagonal, from) {}
  // kEither: the key may lie on either side of the diagonal.
  template <bool kEither>
  __device__ __forceinline__ float of(i32 distance) const {
    if (!kEither) return fma_rn_f32(growth, static_cast<float>(distance), from_origin);
    return fma_rn_f32(-slope, abs_f32(from_diagonal + static_cast<float>(distance)), of_diagonal);
  }
};
//% end
