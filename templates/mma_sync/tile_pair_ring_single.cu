// One pair of tiles, of two tensors that are walked in step, and what comes beside them. The first barrier of a step says that the pair has
// landed for all threads, the second that all have read it: the next one takes its place.
struct TilePairRing {
  static constexpr i32 stage = 0;
  StreamedRows rows;
  LseDeltaStream beside;
  i32 pairs;  // that are still to be copied
  u32 shared;

  __device__ __forceinline__ void prefetch() {
    if (pairs-- > 0) {
      rows.load_next(shared + kFirstOffset, shared + kSecondOffset);
      beside.load_next(shared, 0);
    }
    cp_async_commit_group();
  }
  __device__ __forceinline__ void acquire() {
    cp_async_wait_group<0>();
    bar_sync();
  }
  __device__ __forceinline__ void release() {
    bar_sync();
    prefetch();
  }
  __device__ __forceinline__ u32 first_tile() const { return shared + kFirstOffset; }
  __device__ __forceinline__ u32 second_tile() const { return shared + kSecondOffset; }
};
