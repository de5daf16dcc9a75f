// Registers of each thread of the warpgroup from here on. The launch must have taken as many for all of them together.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// wgmma: products of a warpgroup. It runs beside the threads that issue it: registers of d and a, and the shared memory that descriptors
// name, are its own from the issue until a wait_group that covers it.

// Orders accesses to registers before it with products after it.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending of the youngest groups are under way.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// After a wait_group: the compiler sees no link between it and the registers that it completes; this is the link.
template <i32 kRegisters>
__device__ __forceinline__ void wgmma_landed(float (&d)[kRegisters]) {
#pragma unroll
  for (i32 i = 0; i < kRegisters; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d = a b, or d += a b with kAccumulate: m64nNk16, N twice the registers of d. Warp w of the warpgroup holds of d the rows 16 w to 16 w + 15 as
// fragments of m16n8: d[4 n + i] is row lane / 4 + 8 (i / 2), column 8 n + 2 (lane % 4) + i % 2. b is K-major, or MN-major (kTransposed).
//% for wgmma_shapes
template <bool kAccumulate, bool kTransposed>
__device__ __forceinline__ void wgmma_ss(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %${wgmma_shapes.operand2}, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n${wgmma_shapes.n}k16.f32.${dtype}.${dtype} "
      "{${wgmma_shapes.operands}}, "
      "%${wgmma_shapes.operand0}, %${wgmma_shapes.operand1}, p, 1, 1, 0, %${wgmma_shapes.operand3};\n"
      "}"
      : ${wgmma_shapes.outputs}
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kAccumulate ? 1 : 0), "n"(kTransposed ? 1 : 0));
}
// wgmma with a from registers: its fragment is a[4 step], ... a[4 step + 3].
template <bool kAccumulate, bool kTransposed, i32 kFragments>
__device__ __forceinline__ void wgmma_rs(float (&d)[${wgmma_shapes.registers}], const u32 (&a)[kFragments], i32 step, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %${wgmma_shapes.operand5}, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n${wgmma_shapes.n}k16.f32.${dtype}.${dtype} "
      "{${wgmma_shapes.operands}}, "
      "{%${wgmma_shapes.operand0}, %${wgmma_shapes.operand1}, %${wgmma_shapes.operand2}, %${wgmma_shapes.operand3}}, "
      "%${wgmma_shapes.operand4}, p, 1, 1, %${wgmma_shapes.operand6};\n"
      "}"
      : ${wgmma_shapes.outputs}
      : "r"(a[4 * step]), "r"(a[4 * step + 1]), "r"(a[4 * step + 2]), "r"(a[4 * step + 3]), "l"(b_descriptor), "n"(kAccumulate ? 1 : 0),
        "n"(kTransposed ? 1 : 0));
}
//% end

// The first product of a sum, d = a b: d is an output alone, so that the compiler keeps nothing that it held before.
//% for wgmma_shapes
template <bool kTransposed>
__device__ __forceinline__ void wgmma_ss_first(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n${wgmma_shapes.n}k16.f32.${dtype}.${dtype} "
      "{${wgmma_shapes.operands}}, "
      "%${wgmma_shapes.operand0}, %${wgmma_shapes.operand1}, p, 1, 1, 0, %${wgmma_shapes.operand2};\n"
      "}"
      : ${wgmma_shapes.first_outputs}
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kTransposed ? 1 : 0));
}
//% end

// The same two with a MN-major, as b may be: rows of shared memory are k.
//% for wgmma_shapes
template <bool kAccumulate, bool kTransposed>
__device__ __forceinline__ void wgmma_ss_transposed_a(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %${wgmma_shapes.operand2}, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n${wgmma_shapes.n}k16.f32.${dtype}.${dtype} "
      "{${wgmma_shapes.operands}}, "
      "%${wgmma_shapes.operand0}, %${wgmma_shapes.operand1}, p, 1, 1, 1, %${wgmma_shapes.operand3};\n"
      "}"
      : ${wgmma_shapes.outputs}
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kAccumulate ? 1 : 0), "n"(kTransposed ? 1 : 0));
}
template <bool kTransposed>
__device__ __forceinline__ void wgmma_ss_transposed_a_first(float (&d)[${wgmma_shapes.registers}], u64 a_descriptor, u64 b_descriptor) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n${wgmma_shapes.n}k16.f32.${dtype}.${dtype} "
      "{${wgmma_shapes.operands}}, "
      "%${wgmma_shapes.operand0}, %${wgmma_shapes.operand1}, p, 1, 1, 1, %${wgmma_shapes.operand2};\n"
      "}"
      : ${wgmma_shapes.first_outputs}
      : "l"(a_descriptor), "l"(b_descriptor), "n"(kTransposed ? 1 : 0));
}
//% end
