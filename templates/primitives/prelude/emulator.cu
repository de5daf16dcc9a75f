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
  void (*multiply_add)(const char* name, float* d, const u32* a, const u32* b, u32 k, bool bf16);
  u32 (*shuffle_xor)(const char* name, u32 x, u32 mask);
  bool (*vote_any)(const char* name, bool x);
};
static EmulatorServices emulator;

extern "C" __attribute__((visibility("default"))) bool attune_emulator_bind(const EmulatorServices* services) {
  if (services->bytes != sizeof(EmulatorServices)) return false;
  emulator = *services;
  return true;
}

constexpr u32 kWarpSize = 32;
constexpr u32 kAllLanes = 0xffffffffu;

inline float bits_to_f32(u32 x) { return __builtin_bit_cast(float, x); }
inline u32 f32_to_bits(float x) { return __builtin_bit_cast(u32, x); }

inline float negative_infinity() { return -__builtin_inff(); }
inline u32 thread_index() { return emulator.thread_index(); }  // in the CTA
inline u32 lane_index() { return emulator.thread_index() % kWarpSize; }
inline u32 block_index() { return emulator.block_index(); }    // of the CTA in the grid
inline u32 warp_index() { return emulator.thread_index() / kWarpSize; }
