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
