#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attune {

/// An operand of wgmma in shared memory, as its 64-bit descriptor and the instruction tell it. Its 16-byte chunks hold
/// eight elements along K, or along M or N if it is MN-major.
struct MatrixOperand {
  std::uint32_t address = 0;        ///< where it begins, before the swizzle
  std::uint32_t leading_bytes = 0;  ///< MN-major: between spans along M or N
  std::uint32_t stride_bytes = 0;   ///< between groups of eight rows (K-major) or eight ks (MN-major)
  std::uint32_t swizzle_bytes = 0;  ///< and of the span: 32, 64, 128
  std::uint32_t rows = 0;           ///< M or N
  bool mn_major = false;

  /// Swizzled addresses of its chunks: K-major row by row, two of each; MN-major k by k, rows / 8 of each.
  void chunks(std::vector<std::uint32_t>& addresses) const;
};

/// Reads a descriptor (PTX ISA, "Matrix descriptor format"). What the emulator, or the hardware, does not take is told
/// in `complaint`, which stays as it is otherwise.
MatrixOperand matrix_operand(std::uint64_t descriptor, std::uint32_t rows, bool mn_major, std::string& complaint);

/// Operands of one wgmma as numbers; reused from call to call.
struct WarpgroupOperands {
  static constexpr std::uint32_t kColumns = 256 + 8;  // not a power of two: a column would fill few sets of the cache
  alignas(64) double a[64][16];
  alignas(64) double b[16][kColumns];
};

/// Fills a or b from the chunks of an operand in shared memory, in the order of MatrixOperand::chunks; `shared` is
/// where the shared address `base` lies.
void unpack_a(const std::vector<std::uint32_t>& chunks, const std::uint8_t* shared, std::uint32_t base, bool mn_major,
              bool bf16, WarpgroupOperands& to);
void unpack_b(const std::vector<std::uint32_t>& chunks, const std::uint8_t* shared, std::uint32_t base, std::uint32_t n,
              bool mn_major, bool bf16, WarpgroupOperands& to);
/// Fills a from the registers of 128 threads, fragments of m16k16 for each warp.
void unpack_a_fragments(const std::uint32_t* const* a, bool bf16, WarpgroupOperands& to);

/// values (64 rows of n) = a b, or += a b: each element is its old value plus the products in ascending k, summed in
/// double precision (products of 16-bit numbers are exact there) and rounded once to fp32.
void warpgroup_multiply_add(float* values, std::uint32_t n, bool accumulate, const WarpgroupOperands& operands);

/// Moves d between the registers of `warps` warps (n / 2 of each thread) and their 16 rows of n each.
void gather_registers(const float* const* d, std::uint32_t warps, std::uint32_t n, float* values);
void scatter_registers(const float* values, std::uint32_t warps, std::uint32_t n, float* const* d);

}  // namespace attune
