// All threads of the CTA.
inline void bar_sync() { emulator.barrier("bar_sync"); }

// All lanes of the warp; orders their accesses to shared memory.
inline void bar_warp_sync() { emulator.warp_barrier("bar_warp_sync"); }

inline void add_to(u32* to, float x) {
  u32 expected = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(to, &expected, bits_of_float(float_of_bits(expected) + x), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// Adds to memory that other CTAs add to as well; an element is added to whole, four of them in no order.
inline void red_global_add_f32(float* to, float x) {
  add_to(static_cast<u32*>(emulator.global_memory("red_global_add_f32", to, sizeof(float), true)), x);
}

// Compute capability 9.0 and newer; `to` is a multiple of 16 bytes.
inline void red_global_add_v4_f32(float* to, Vec4F32 x) {
  u32* elements = static_cast<u32*>(emulator.global_memory("red_global_add_v4_f32", to, sizeof(Vec4F32), true));
  add_to(elements, x.x);
  add_to(elements + 1, x.y);
  add_to(elements + 2, x.z);
  add_to(elements + 3, x.w);
}

inline u32 atom_relaxed_gpu_global_add_u32(u32* to, u32 x) {
  return __atomic_fetch_add(static_cast<u32*>(emulator.global_memory("atom_relaxed_gpu_global_add_u32", to, sizeof(u32), true)), x,
                            __ATOMIC_RELAXED);
}

// What this thread's CTA has written, as far as a barrier told this thread, comes before x for those who see it by an acquire.
inline void st_release_gpu_global_u32(u32* to, u32 x) {
  __atomic_store_n(static_cast<u32*>(emulator.global_memory("st_release_gpu_global_u32", to, sizeof(u32), true)), x, __ATOMIC_RELEASE);
}

// Returns when *from is x.
inline void wait_acquire_gpu_global_u32(const u32* from, u32 x) { emulator.wait_global("wait_acquire_gpu_global_u32", from, x); }

// Orders what this thread has done before it with what it does after it, for all threads of the device.
inline void fence_acq_rel_gpu() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

// What comes before an addition in one thread comes before what follows a later one in another.
inline u32 atom_acq_rel_gpu_global_add_u32(u32* to, u32 x) {
  return __atomic_fetch_add(static_cast<u32*>(emulator.global_memory("atom_acq_rel_gpu_global_add_u32", to, sizeof(u32), true)), x,
                            __ATOMIC_ACQ_REL);
}

// Launches follow each other here.
inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}

// Whether x holds in any lane of the warp.
inline bool vote_sync_any(bool x) { return emulator.vote_any("vote_sync_any", x); }

// Named barriers of the CTA, 1 to 15 (0 is bar_sync's): `threads` of it arrive, those that sync also wait.
inline void bar_sync_named(u32 name, u32 threads) { emulator.named_barrier("bar_sync_named", name, threads, true); }
inline void bar_arrive_named(u32 name, u32 threads) { emulator.named_barrier("bar_arrive_named", name, threads, false); }

// This thread's ordinary accesses to shared memory before it come before accesses by wgmma and TMA that are ordered after it.
inline void fence_proxy_async() { emulator.proxy_fence(); }

// All threads of all CTAs of the cluster.
inline void barrier_cluster_sync() { emulator.cluster_barrier("barrier_cluster_sync"); }
