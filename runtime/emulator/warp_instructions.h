#pragma once

#include <cstdint>

namespace attune {

constexpr std::uint32_t kWarpLanes = 32;

/// mma.sync.m16n8k{8,16} of a whole warp, 16-bit inputs, fp32 accumulation. d[lane], a[lane], b[lane] point to that
/// lane's registers (PTX's fragments). Each element is the accumulator plus the products in ascending k, summed in
/// double precision (products of 16-bit numbers are exact there) and rounded once to fp32: the same bits on every host.
void warp_multiply_add(float* const* d, const std::uint32_t* const* a, const std::uint32_t* const* b, std::uint32_t k,
                       bool bf16);

/// ldmatrix of `count` 8x8 matrices of 16-bit elements: rows[8 i + j] is row j of matrix i (16 bytes), r[lane] that
/// lane's registers.
void warp_load_matrices(std::uint32_t* const* r, const std::uint8_t* const* rows, std::uint32_t count, bool transpose);

/// movmatrix.trans: x[lane] are the two elements of an 8x8 matrix of 16-bit elements that lane has in a fragment.
void warp_transpose_matrix(std::uint32_t* results, const std::uint32_t* x);

/// stmatrix of `count` such matrices.
void warp_store_matrices(std::uint8_t* const* rows, const std::uint32_t* const* r, std::uint32_t count, bool transpose);

}  // namespace attune
