// 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the row addresses of matrix i; lane l receives of each matrix the elements
// (row l / 4, columns 2 (l % 4) and + 1), with trans those of the transposed matrix.
inline void ldmatrix_x4(u32 (&r)[4], u32 row) { emulator.load_matrices("ldmatrix_x4", r, row, 4, false); }
inline void ldmatrix_x4_trans(u32 (&r)[4], u32 row) { emulator.load_matrices("ldmatrix_x4_trans", r, row, 4, true); }
inline void ldmatrix_x2(u32 (&r)[2], u32 row) { emulator.load_matrices("ldmatrix_x2", r, row, 2, false); }
inline void ldmatrix_x2_trans(u32 (&r)[2], u32 row) { emulator.load_matrices("ldmatrix_x2_trans", r, row, 2, true); }

// The element (row l / 4, columns 2 (l % 4) and + 1) of the transposed matrix, of which each lane gives those of the matrix.
inline u32 movmatrix_trans(u32 x) { return emulator.transpose_matrix("movmatrix_trans", x); }

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

// 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the row addresses of matrix i; lane l gives of each matrix the elements
// (row l / 4, columns 2 (l % 4) and + 1).
inline void stmatrix_x4(u32 row, const u32 (&r)[4]) { emulator.store_matrices("stmatrix_x4", r, row, 4, false); }

// The same, where the lanes give the elements of the transposed matrices.
inline void stmatrix_x4_trans(u32 row, const u32 (&r)[4]) { emulator.store_matrices("stmatrix_x4_trans", r, row, 4, true); }
