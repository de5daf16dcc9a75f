// mbarriers: 64-bit objects in shared memory that complete a phase when `arrivals` threads have arrived and all expected bytes have landed.
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier that lies at this address in CTA `cta` of the cluster, to say that what this thread has read may be overwritten. What it has written
// counts as handed over within its own CTA only: a release to the cluster is a MEMBAR of the whole GPU, hundreds of clocks.
__device__ __forceinline__ void mbarrier_arrive_cluster(u32 barrier, u32 cta) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier), "r"(cta) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Whether the phase of this parity has completed.
__device__ __forceinline__ bool mbarrier_test_wait_parity(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}

// Whether the phase of this parity has completed; waits a while for it.
__device__ __forceinline__ bool mbarrier_try_wait_parity(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}

__device__ __forceinline__ void mbarrier_wait_parity(u32 barrier, u32 parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {
  }
}
