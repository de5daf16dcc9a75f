// Tells the emulator to watch shared memory for accesses of both proxies.
extern "C" __attribute__((visibility("default"))) const bool attune_emulator_async_proxy = true;

constexpr u32 kOwnCta = 0xffffffffu;  // of the running thread

// Kinds of mbarrier_wait: asks and goes on, waits a while, waits until the phase has completed.
constexpr u32 kTestWait = 0;
constexpr u32 kTryWait = 1;
constexpr u32 kWait = 2;

// mbarriers: 64-bit objects in shared memory that complete a phase when `arrivals` threads have arrived and all expected bytes have landed.
inline void mbarrier_init(u32 barrier, u32 arrivals) { emulator.mbarrier_init("mbarrier_init", barrier, arrivals); }

// Makes initialised barriers visible to the cluster and to TMA.
inline void fence_mbarrier_init() { emulator.mbarrier_fence(); }

inline void mbarrier_arrive(u32 barrier) { emulator.mbarrier_arrive("mbarrier_arrive", barrier, kOwnCta, 0); }

// Arrives at the barrier that lies at this address in CTA `cta` of the cluster.
inline void mbarrier_arrive_cluster(u32 barrier, u32 cta) { emulator.mbarrier_arrive("mbarrier_arrive_cluster", barrier, cta, 0); }

inline void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  emulator.mbarrier_arrive("mbarrier_arrive_expect_tx", barrier, kOwnCta, bytes);
}

// Whether the phase of this parity has completed.
inline bool mbarrier_test_wait_parity(u32 barrier, u32 parity) {
  return emulator.mbarrier_wait("mbarrier_test_wait_parity", barrier, parity, kTestWait);
}

// Whether the phase of this parity has completed; waits a while for it.
inline bool mbarrier_try_wait_parity(u32 barrier, u32 parity) {
  return emulator.mbarrier_wait("mbarrier_try_wait_parity", barrier, parity, kTryWait);
}

inline void mbarrier_wait_parity(u32 barrier, u32 parity) { emulator.mbarrier_wait("mbarrier_wait_parity", barrier, parity, kWait); }
