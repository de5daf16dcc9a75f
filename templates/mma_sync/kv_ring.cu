// kStages tiles of K and of V; a block's two tiles are copied kStages - 1 steps before they are read. The one barrier of a step says
// that its block has landed for all threads, and that all have finished with the block before it, whose tiles are filled next.
struct KvRing {
  KvStream k, v;
  i32 blocks;  // that are still to be copied
  u32 shared;
  i32 stage = 0;  // of the block that is read

  __device__ __forceinline__ void load(i32 into) {
    if (blocks-- > 0) {
      k.load_next(shared + kKOffset + into * kKvTileBytes);
      v.load_next(shared + kVOffset + into * kKvTileBytes);
    }
    cp_async_commit_group();  // also where nothing is left to load: waiting counts groups
  }
  __device__ __forceinline__ void prefetch() {
#pragma unroll
    for (i32 i = 0; i < kStages - 1; ++i) load(i);
  }
  __device__ __forceinline__ void acquire_k() {
    cp_async_wait_group<kStages - 2>();
    bar_sync();
    load(stage == 0 ? kStages - 1 : stage - 1);
  }
  __device__ __forceinline__ void acquire_v() {}
  __device__ __forceinline__ void release() { stage = stage == kStages - 1 ? 0 : stage + 1; }
  __device__ __forceinline__ u32 k_tile() const { return shared + kKOffset + stage * kKvTileBytes; }
  __device__ __forceinline__ u32 v_tile() const { return shared + kVOffset + stage * kKvTileBytes; }
};
