#pragma once

#include <array>
#include <cstdint>

#include "generator/plan/kernel_plan.h"
#include "generator/problem/operand_shape.h"

namespace attune {

/// What the driver is told of a tensor and of the box that a copy moves, from the contiguous dimension outwards:
/// (column, head, row, batch), or (column, head, row, size, batch) of a map that ends with the rows of each sequence.
struct TensorMapExtents {
  int rank = 4;
  std::uint64_t bytes_before = 0;  ///< that the map begins before the tensor
  std::array<std::uint64_t, 5> dims{};
  std::array<std::uint64_t, 4> strides_bytes{};  ///< of the dimensions behind the first; 16 where the extent is 1
  std::array<std::uint32_t, 5> box{};            ///< in elements
};
TensorMapExtents tensor_map_extents(const TensorMapSpec& spec, const OperandShape& shape, const TensorStrides& strides);

/// A stride that a kernel is given: that of a row is 0 for a tensor of one row, and so is each of a tensor of pairs
/// along which that repeats.
std::int64_t stride_argument(const AttentionProblem& problem, const Stride& stride, const TensorStrides& strides);

/// Whether rows start at multiples of 16 bytes where the first one does, and no stride is one that tensor maps refuse.
/// Strides of dimensions of extent 1 are never used, whatever they say.
bool has_aligned_strides(const OperandShape& shape, const TensorStrides& strides);
/// ByTensorMap of a tensor of pairs that begins at an address.
bool fits_tensor_map(std::uint64_t address, const OperandShape& shape, const TensorStrides& strides);

/// The same of one that a kernel writes. TMA stores 16 bytes at a time: of a row that ends within them the rest is
/// overwritten with what shared memory holds (seen on an H200; the PTX ISA says that nothing beyond the end is
/// written).
bool fits_stored_tensor_map(std::uint64_t address, const OperandShape& shape, const TensorStrides& strides);

/// Those of an OperandCopy: (batch, head, row), packed but for rows, which begin at multiples of 16 bytes.
TensorStrides copy_strides(const OperandShape& shape);

}  // namespace attune
