// kStages pairs of tiles, of two tensors that are walked in step, and what comes beside them; a pair is copied kStages - 1 steps before it is
// read. The one barrier of a step says that its pair has landed for all threads, and that all have finished with the pair before it, whose
// place is filled next.
struct TilePairRing {
  StreamedRows rows;
  LseDeltaStream beside;
  i32 pairs;  // that are still to be copied
  u32 shared;
  i32 stage = 0;  // of the pair that is read

  __device__ __forceinline__ void load(i32 into) {
    if (pairs-- > 0) {
      rows.load_next(shared + kFirstOffset + into * kStreamedTileBytes, shared + kSecondOffset + into * kStreamedTileBytes);
      beside.load_next(shared, into);
    }
    cp_async_commit_group();  // also where nothing is left to load: waiting counts groups
  }
  __device__ __forceinline__ void prefetch() {
#pragma unroll
    for (i32 i = 0; i < kStages - 1; ++i) load(i);
  }
  __device__ __forceinline__ void acquire() {
    cp_async_wait_group<kStages - 2>();
    bar_sync();
    load(stage == 0 ? kStages - 1 : stage - 1);
  }
  __device__ __forceinline__ void release() { stage = stage == kStages - 1 ? 0 : stage + 1; }
  __device__ __forceinline__ u32 first_tile() const { return shared + kFirstOffset + stage * kStreamedTileBytes; }
  __device__ __forceinline__ u32 second_tile() const { return shared + kSecondOffset + stage * kStreamedTileBytes; }
};
