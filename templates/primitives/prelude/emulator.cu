using i32 = int;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

// What the emulator does for a kernel that runs on the host, one call per instruction that touches memory or other lanes. Each
// instruction passes its name: it is what error messages say, and what all lanes of a collective must agree on.
struct EmulatorServices {
  u64 bytes;  // of this table: the kernel and the emulator must agree on it
  u32 (*thread_index)();
  u32 (*warp_index)();
  u32 (*block_index)();
  void* (*global_memory)(const char* name, const void* address, u32 bytes, bool write);  // checked and aligned
  u32 (*shared_base)();
  void* (*shared_memory)(const char* name, u32 address, u32 bytes, bool write);
  void (*barrier)(const char* name);       // of the CTA
  void (*warp_barrier)(const char* name);
  void (*async_copy)(const char* name, u32 to, const void* from, u32 bytes);
  void (*async_commit)();
  void (*async_wait)(u32 pending_groups);
  void (*load_matrices)(const char* name, u32* r, u32 row, u32 count, bool transpose);
  void (*store_matrices)(const char* name, const u32* r, u32 row, u32 count, bool transpose);
  void (*multiply_add)(const char* name, float* d, const u32* a, const u32* b, u32 k, bool bf16);
  u32 (*transpose_matrix)(const char* name, u32 x);
  u32 (*shuffle_xor)(const char* name, u32 x, u32 mask);
  bool (*vote_any)(const char* name, bool x);
  u32 (*grid_size)();
  u32 (*cluster_rank)();
  void (*cluster_barrier)(const char* name);
  void (*mbarrier_init)(const char* name, u32 barrier, u32 arrivals);
  void (*mbarrier_arrive)(const char* name, u32 barrier, u32 cta, u32 bytes);
  void (*store_async)(const char* name, u32 to, u32 x, u32 barrier, u32 cta);
  bool (*mbarrier_wait)(const char* name, u32 barrier, u32 parity, u32 patience);
  void (*mbarrier_fence)();
  void (*named_barrier)(const char* name, u32 index, u32 threads, bool wait);
  void (*prefetch_tensor_map)(const char* name, const void* map);
  void (*tensor_load)(const char* name, u32 to, const void* map, u32 barrier, u32 ctas, const i32* at, u32 rank);
  void (*bulk_load)(const char* name, u32 to, const void* from, u32 bytes, u32 barrier);
  void (*bulk_copy)(const char* name, u32 to, u32 from, u32 bytes, u32 barrier, u32 cta);
  void (*tensor_store)(const char* name, const void* map, u32 from, const i32* at);
  void (*bulk_add)(const char* name, void* to, u32 from, u32 bytes);
  void (*bulk_commit)();
  void (*bulk_wait_read)(u32 pending_groups);
  void (*proxy_fence)();
  void (*set_registers)(const char* name, u32 registers);
  void (*wgmma)(const char* name, float* d, u32 n, const u32* a, u64 a_descriptor, u64 b_descriptor, u32 flags);
  void (*wgmma_fence)();
  void (*wgmma_commit)();
  void (*wgmma_wait)(const char* name, u32 pending_groups);
  void (*wait_global)(const char* name, const u32* address, u32 value);
};
static EmulatorServices emulator;

extern "C" __attribute__((visibility("default"))) bool attune_emulator_bind(const EmulatorServices* services) {
  if (services->bytes != sizeof(EmulatorServices)) return false;
  emulator = *services;
  return true;
}

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

inline float float_of_bits(u32 x) { return __builtin_bit_cast(float, x); }
inline u32 bits_of_float(float x) { return __builtin_bit_cast(u32, x); }

inline float negative_infinity() { return -__builtin_inff(); }
inline u32 thread_index() { return emulator.thread_index(); }  // in the CTA
inline u32 lane_index() { return emulator.thread_index() % kWarpSize; }
inline u32 block_index() { return emulator.block_index(); }    // of the CTA in the grid
inline u32 warp_index() { return emulator.warp_index(); }

inline u32 cluster_cta_rank() { return emulator.cluster_rank(); }

inline u32 grid_size() { return emulator.grid_size(); }

inline i32 opaque_i32(i32 x) { return x; }
