#include "generator/plan/tensor_strides.h"

#include "generator/plan/launch_rules.h"

namespace attune {

TensorMapExtents tensor_map_extents(const TensorMapSpec& spec, const OperandShape& shape,
                                    const TensorStrides& strides) {
  const auto bytes = [&](std::int64_t stride, std::int64_t extent) {
    return static_cast<std::uint64_t>(launch_rules::map_stride_bytes(stride, extent, size_of(shape.element)));
  };
  return {{static_cast<std::uint64_t>(shape.columns), static_cast<std::uint64_t>(shape.heads),
           static_cast<std::uint64_t>(shape.rows), static_cast<std::uint64_t>(shape.batch)},
          {bytes(strides.head, shape.heads), bytes(strides.row, shape.rows), bytes(strides.batch, shape.batch)},
          {static_cast<std::uint32_t>(spec.box_columns), static_cast<std::uint32_t>(spec.box_heads),
           static_cast<std::uint32_t>(spec.box_rows), 1}};
}

std::int64_t row_stride_argument(const OperandShape& shape, const TensorStrides& strides) {
  return launch_rules::row_stride(strides.row, shape.rows);
}

bool has_aligned_strides(const OperandShape& shape, const TensorStrides& strides) {
  const auto aligned = [&](std::int64_t stride, std::int64_t extent) {
    return launch_rules::is_aligned_stride(stride, extent, size_of(shape.element));
  };
  return aligned(strides.batch, shape.batch) && aligned(strides.head, shape.heads) && aligned(strides.row, shape.rows);
}

}  // namespace attune
