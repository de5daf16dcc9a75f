// One tile of K and one of V. V of a block is copied while its S is computed, K of the next block during softmax and P V: each
// of the two barriers of a step says that a tile has landed and that the other one is no longer read.
struct KvRing {
  KvStream k, v;
  i32 blocks;  // of K that are still to be copied
  u32 shared;

  __device__ __forceinline__ void load_k() {
    if (blocks-- > 0) k.load_next(k_tile());
    cp_async_commit_group();
  }
  __device__ __forceinline__ void prefetch() { load_k(); }
  __device__ __forceinline__ void acquire_k() {
    cp_async_wait_group<0>();
    bar_sync();
    v.load_next(v_tile());
    cp_async_commit_group();
  }
  __device__ __forceinline__ void acquire_v() {
    cp_async_wait_group<0>();
    bar_sync();
    load_k();
  }
  __device__ __forceinline__ void release() {}
  __device__ __forceinline__ u32 k_tile() const { return shared + kKOffset; }
  __device__ __forceinline__ u32 v_tile() const { return shared + kVOffset; }
};
