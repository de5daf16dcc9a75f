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
inline u32 ld_global_u8(const void* from) { return load_global<unsigned char>("ld_global_u8", from); }
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

struct alignas(8) Vec2F32 { float x, y; };

// Memory that the kernel itself writes: no .nc, whose cache may hold what was there before.
inline float ld_weak_global_f32(const float* from) { return load_global<float>("ld_weak_global_f32", from); }
inline Vec2F32 ld_weak_global_v2_f32(const float* from) { return load_global<Vec2F32>("ld_weak_global_v2_f32", from); }

inline void st_global_v2_f32(float* to, Vec2F32 x) { store_global("st_global_v2_f32", to, x); }

struct alignas(16) Vec4F32 { float x, y, z, w; };

inline i32 ld_global_i32(const i32* from) { return load_global<i32>("ld_global_i32", from); }
inline float ld_global_f32(const float* from) { return load_global<float>("ld_global_f32", from); }
inline Vec4F32 ld_global_v4_f32(const float* from) { return load_global<Vec4F32>("ld_global_v4_f32", from); }
inline Vec4F32 ld_shared_v4_f32(u32 from) { return load_shared<Vec4F32>("ld_shared_v4_f32", from); }

// Memory that this kernel itself writes.
inline Vec4F32 ld_weak_global_v4_f32(const float* from) { return load_global<Vec4F32>("ld_weak_global_v4_f32", from); }

inline Vec4 ld_global_v4_b32(const void* from) { return load_global<Vec4>("ld_global_v4_b32", from); }
inline double ld_global_f64(const void* from) { return load_global<double>("ld_global_f64", from); }
inline void st_global_b64(void* to, u64 x) { store_global("st_global_b64", to, x); }
inline void st_shared_b64(u32 to, u64 x) { store_shared("st_shared_b64", to, x); }
inline u64 ld_shared_b64(u32 from) { return load_shared<u64>("ld_shared_b64", from); }

// Round to nearest even; NaN becomes the one NaN that the hardware writes.
inline u32 round_to_bf16(float x) {
  const u32 bits = bits_of_float(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
inline u32 round_to_f16(float x) {
  const u32 sign = bits_of_float(x) >> 16 & 0x8000u;
  const u32 magnitude = bits_of_float(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more round to infinity
  // Below 2^-14 the result is subnormal: the last bit of a sum with 0.5 is 2^-24, so the addition rounds.
  if (magnitude < 0x38800000u) return sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f));
  return sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
}

// Two floats rounded to 16 bits: `high` to the upper half (PTX's operand order).
inline u32 cvt_rn_bf16x2_f32(float high, float low) { return round_to_bf16(high) << 16 | round_to_bf16(low); }
inline u32 cvt_rn_f16x2_f32(float high, float low) { return round_to_f16(high) << 16 | round_to_f16(low); }

inline double cvt_f64_bf16(u16 x) { return float_of_bits(static_cast<u32>(x) << 16); }
inline double cvt_f64_f16(u16 x) {
  const u32 sign = (x & 0x8000u) << 16;
  const u32 magnitude = x & 0x7fffu;
  const float value = magnitude >= 0x7c00u ? float_of_bits(0x7f800000u | magnitude << 13) : float_of_bits(magnitude << 13) * 0x1p112f;
  return float_of_bits(bits_of_float(value) | sign);
}

// Two elements of 16 bits as floats.
inline float cvt_f32_low_bf16(u32 pair) { return float_of_bits(pair << 16); }
inline float cvt_f32_high_bf16(u32 pair) { return float_of_bits(pair & 0xffff0000u); }
inline float cvt_f32_low_f16(u32 pair) { return static_cast<float>(cvt_f64_f16(static_cast<u16>(pair))); }
inline float cvt_f32_high_f16(u32 pair) { return static_cast<float>(cvt_f64_f16(static_cast<u16>(pair >> 16))); }

// Copies 16 bytes from global to shared memory without registers; only the first `bytes` (0 or 16) are read, the rest is zero.
inline void cp_async_cg_16(u32 to, const void* from, u32 bytes) { emulator.async_copy("cp_async_cg_16", to, from, bytes); }

inline void cp_async_commit_group() { emulator.async_commit(); }

// Waits until at most kPending of this thread's youngest groups are under way.
template <int kPending>
inline void cp_async_wait_group() {
  emulator.async_wait(kPending);
}

// x of the lane whose index differs in the bits of kMask.
template <int kMask>
inline float shfl_sync_bfly_f32(float x) {
  return float_of_bits(emulator.shuffle_xor("shfl_sync_bfly_f32", bits_of_float(x), kMask));
}
template <int kMask>
inline u32 shfl_sync_bfly_b32(u32 x) {
  return emulator.shuffle_xor("shfl_sync_bfly_b32", x, kMask);
}

inline u64 ld_global_b64(const u64* from) { return load_global<u64>("ld_global_b64", from); }

// Four bytes, each one of the eight of a and b that a nibble of the selector names (a's first), or, with the nibble's highest bit, eight times that byte's
// highest bit.
inline u32 prmt_b32(u32 a, u32 b, u32 selector) {
  const u64 bytes = static_cast<u64>(b) << 32 | a;
  u32 r = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i) & 15, byte = static_cast<u32>(bytes >> (8 * (nibble & 7))) & 255;
    r |= ((nibble & 8) == 0 ? byte : (byte & 128) != 0 ? 255u : 0u) << (8 * i);
  }
  return r;
}

// The greater ones of two signed numbers each.
inline u32 max_s16x2(u32 a, u32 b) {
  const auto half = [](u32 x, u32 y) { return ((x ^ 0x8000u) & 0xffffu) > ((y ^ 0x8000u) & 0xffffu) ? x & 0xffffu : y & 0xffffu; };
  return half(a, b) | half(a >> 16, b >> 16) << 16;
}

// The number of the highest bit that is set in x, which is not 0.
inline u32 bfind_b32(u32 x) {
  u32 r = 0;
  while ((x >>= 1) != 0) ++r;
  return r;
}

// The bits that are set in any lane's x.
inline u32 redux_sync_or_b32(u32 x) {
  for (u32 mask = 1; mask < kWarpSize; mask *= 2) x |= emulator.shuffle_xor("redux_sync_or_b32", x, mask);
  return x;
}

// Stores x in shared memory of CTA `cta` of the cluster; its 4 bytes complete on that CTA's barrier.
inline void st_async_cluster_b32(u32 to, u32 x, u32 barrier, u32 cta) {
  emulator.store_async("st_async_cluster_b32", to, x, barrier, cta);
}
