// Registers of each thread of the warpgroup from here on. The launch must have taken as many for all of them together.
template <int kRegisters>
inline void setmaxnreg_dec() {
  emulator.set_registers("setmaxnreg_dec", kRegisters);
}
template <int kRegisters>
inline void setmaxnreg_inc() {
  emulator.set_registers("setmaxnreg_inc", kRegisters);
}

// wgmma: products of a warpgroup. It runs beside the threads that issue it: registers of d and a, and the shared memory that descriptors
// name, are its own from the issue until a wait_group that covers it. The arrays of d and a must live until then.

// Orders accesses to registers before it with products after it.
inline void wgmma_fence() { emulator.wgmma_fence(); }

inline void wgmma_commit_group() { emulator.wgmma_commit(); }
// Waits until at most kPending of the youngest groups are under way.
template <int kPending>
inline void wgmma_wait_group() {
  emulator.wgmma_wait("wgmma_wait_group", kPending);
}
// After a wait_group: the compiler sees no link between it and the registers that it completes; here it does.
template <i32 kRegisters>
inline void wgmma_landed(float (&)[kRegisters]) {}

enum class WgmmaType : u32 { f16, bf16 };
constexpr u32 wgmma_flags(bool accumulate, bool transposed) {
  return (accumulate ? 1u : 0u) | (transposed ? 2u : 0u) | (WgmmaType::${dtype} == WgmmaType::bf16 ? 4u : 0u);
}

// d = a b, or d += a b with kAccumulate: m64nNk16, N twice the registers of d. Warp w of the warpgroup holds of d the rows 16 w to 16 w + 15 as
// fragments of m16n8: d[4 n + i] is row lane / 4 + 8 (i / 2), column 8 n + 2 (lane % 4) + i % 2. b is K-major, or MN-major (kTransposed).
//% for wgmma_shapes
template <bool kAccumulate, bool kTransposed>
inline void wgmma_ss(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  emulator.wgmma("wgmma_ss", d, ${wgmma_shapes.n}, nullptr, a_descriptor, b_descriptor, wgmma_flags(kAccumulate, kTransposed));
}
// wgmma with a from registers: its fragment is a[4 step], ... a[4 step + 3].
template <bool kAccumulate, bool kTransposed, i32 kFragments>
inline void wgmma_rs(float (&d)[${wgmma_shapes.registers}], const u32 (&a)[kFragments], i32 step, u64 b_descriptor) {
  emulator.wgmma("wgmma_rs", d, ${wgmma_shapes.n}, a + 4 * step, 0, b_descriptor, wgmma_flags(kAccumulate, kTransposed));
}
//% end

// The first product of a sum, d = a b: d is an output alone, so that the compiler keeps nothing that it held before.
//% for wgmma_shapes
template <bool kTransposed>
inline void wgmma_ss_first(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  emulator.wgmma("wgmma_ss_first", d, ${wgmma_shapes.n}, nullptr, a_descriptor, b_descriptor, wgmma_flags(false, kTransposed));
}
//% end

// The same two with a MN-major, as b may be: rows of shared memory are k.
constexpr u32 kWgmmaTransposedA = 8;
//% for wgmma_shapes
template <bool kAccumulate, bool kTransposed>
inline void wgmma_ss_transposed_a(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  emulator.wgmma("wgmma_ss_transposed_a", d, ${wgmma_shapes.n}, nullptr, a_descriptor, b_descriptor, wgmma_flags(kAccumulate, kTransposed) | kWgmmaTransposedA);
}
template <bool kTransposed>
inline void wgmma_ss_transposed_a_first(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  emulator.wgmma("wgmma_ss_transposed_a_first", d, ${wgmma_shapes.n}, nullptr, a_descriptor, b_descriptor, wgmma_flags(false, kTransposed) | kWgmmaTransposedA);
}
//% end
