// Copies 16 bytes from global to shared memory without registers; only the first `bytes` (0 or 16) are read, the rest is zero.
inline void cp_async_cg_16(u32 to, const void* from, u32 bytes) { emulator.async_copy("cp_async_cg_16", to, from, bytes); }
inline void cp_async_commit_group() { emulator.async_commit(); }
// Waits until at most kPending of this thread's youngest groups are under way.
template <int kPending>
inline void cp_async_wait_group() {
  emulator.async_wait(kPending);
}

// 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the row addresses of matrix i; lane l receives of each matrix the elements
// (row l / 4, columns 2 (l % 4) and + 1), with trans those of the transposed matrix.
inline void ldmatrix_x4(u32 (&r)[4], u32 row) { emulator.load_matrices("ldmatrix_x4", r, row, 4, false); }
inline void ldmatrix_x4_trans(u32 (&r)[4], u32 row) { emulator.load_matrices("ldmatrix_x4_trans", r, row, 4, true); }
inline void ldmatrix_x2(u32 (&r)[2], u32 row) { emulator.load_matrices("ldmatrix_x2", r, row, 2, false); }
inline void ldmatrix_x2_trans(u32 (&r)[2], u32 row) { emulator.load_matrices("ldmatrix_x2_trans", r, row, 2, true); }

// d += a b for a 16 x k (row-major) and b k x 8 (column-major), fp32 accumulation. Lane l holds of d the rows l / 4 and l / 4 + 8,
// columns 2 (l % 4) and + 1; of a the same rows, of b the column l / 4.
inline void mma_m16n8k16_f32_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[2] = {b0, b1};
  emulator.multiply_add("mma_m16n8k16_f32_bf16", d, a, b, 16, true);
}
inline void mma_m16n8k16_f32_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[2] = {b0, b1};
  emulator.multiply_add("mma_m16n8k16_f32_f16", d, a, b, 16, false);
}
inline void mma_m16n8k8_f32_bf16(float (&d)[4], const u32 (&a)[2], u32 b0) {
  emulator.multiply_add("mma_m16n8k8_f32_bf16", d, a, &b0, 8, true);
}
inline void mma_m16n8k8_f32_f16(float (&d)[4], const u32 (&a)[2], u32 b0) {
  emulator.multiply_add("mma_m16n8k8_f32_f16", d, a, &b0, 8, false);
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
// Whether x holds in any lane of the warp.
inline bool vote_sync_any(bool x) { return emulator.vote_any("vote_sync_any", x); }
