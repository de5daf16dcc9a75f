// Adds to memory that other CTAs add to as well; an element is added to whole, four of them in no order.
__device__ __forceinline__ void red_global_add_f32(float* to, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
// Compute capability 9.0 and newer; `to` is a multiple of 16 bytes.
__device__ __forceinline__ void red_global_add_v4_f32(float* to, Vec4F32 x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
}
