struct alignas(16) Vec4 { u32 x, y, z, w; };  // 16 bytes: eight 16-bit elements

template <typename T>
inline T load_global(const char* name, const void* from) {
  T r;
  __builtin_memcpy(&r, emulator.global_memory(name, from, sizeof(T), false), sizeof(T));
  return r;
}
template <typename T>
inline void store_global(const char* name, void* to, T x) {
  __builtin_memcpy(emulator.global_memory(name, to, sizeof(T), true), &x, sizeof(T));
}
template <typename T>
inline T load_shared(const char* name, u32 from) {
  T r;
  __builtin_memcpy(&r, emulator.shared_memory(name, from, sizeof(T), false), sizeof(T));
  return r;
}
template <typename T>
inline void store_shared(const char* name, u32 to, T x) {
  __builtin_memcpy(emulator.shared_memory(name, to, sizeof(T), true), &x, sizeof(T));
}

// Address of the CTA's dynamic shared memory in the shared window; all shared addresses are such 32-bit numbers.
inline u32 shared_base() { return emulator.shared_base(); }

inline u16 ld_global_b16(const void* from) { return load_global<u16>("ld_global_b16", from); }
inline void st_global_b16(void* to, u16 x) { store_global("st_global_b16", to, x); }
inline void st_global_b32(void* to, u32 x) { store_global("st_global_b32", to, x); }
inline void st_global_f32(void* to, float x) { store_global("st_global_f32", to, x); }
inline void st_global_f64(void* to, double x) { store_global("st_global_f64", to, x); }
inline void st_global_v4_b32(void* to, Vec4 x) { store_global("st_global_v4_b32", to, x); }

inline void st_shared_b32(u32 to, u32 x) { store_shared("st_shared_b32", to, x); }
inline u32 ld_shared_b32(u32 from) { return load_shared<u32>("ld_shared_b32", from); }
inline void st_shared_v4_b32(u32 to, Vec4 x) { store_shared("st_shared_v4_b32", to, x); }
inline Vec4 ld_shared_v4_b32(u32 from) { return load_shared<Vec4>("ld_shared_v4_b32", from); }
inline void st_shared_f64(u32 to, double x) { store_shared("st_shared_f64", to, x); }
inline double ld_shared_f64(u32 from) { return load_shared<double>("ld_shared_f64", from); }

// All threads of the CTA.
inline void bar_sync() { emulator.barrier("bar_sync"); }
// All lanes of the warp; orders their accesses to shared memory.
inline void bar_warp_sync() { emulator.warp_barrier("bar_warp_sync"); }
