// One tile of K and one of V. V of a block is copied while its S is computed, K of the next block during softmax and P V: each
// of the two barriers of a step says that a tile has landed and that the other one is no longer read.
struct KvRing {
  KvBlocks blocks;
  i32 end;
  u32 shared;

  __device__ __forceinline__ void prefetch(i32 first) {
    if (first < end) blocks.load_k(shared + kKOffset, first);
    cp_async_commit_group();
  }
  __device__ __forceinline__ void acquire_k(i32 block) {
    cp_async_wait_group<0>();
    bar_sync();
    blocks.load_v(shared + kVOffset, block);
    cp_async_commit_group();
  }
  __device__ __forceinline__ void acquire_v(i32 block) {
    cp_async_wait_group<0>();
    bar_sync();
    if (block + 1 < end) blocks.load_k(shared + kKOffset, block + 1);
    cp_async_commit_group();
  }
  __device__ __forceinline__ void release() {}
  __device__ __forceinline__ u32 k_tile() const { return shared + kKOffset; }
  __device__ __forceinline__ u32 v_tile() const { return shared + kVOffset; }
};
