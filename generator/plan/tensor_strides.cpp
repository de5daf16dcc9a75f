#include "generator/plan/tensor_strides.h"

#include "generator/plan/launch_rules.h"
#include "generator/rounding.h"

namespace attune {

TensorMapExtents tensor_map_extents(const TensorMapSpec& spec, const OperandShape& shape,
                                    const TensorStrides& strides) {
  const auto bytes = [&](std::int64_t stride, std::int64_t extent) {
    return static_cast<std::uint64_t>(launch_rules::map_stride_bytes(stride, extent, size_of(shape.element)));
  };
  const auto columns = static_cast<std::uint64_t>(shape.columns), heads = static_cast<std::uint64_t>(shape.heads),
             rows = static_cast<std::uint64_t>(shape.rows), batch = static_cast<std::uint64_t>(shape.batch);
  const auto box_columns = static_cast<std::uint32_t>(spec.box_columns),
             box_heads = static_cast<std::uint32_t>(spec.box_heads),
             box_rows = static_cast<std::uint32_t>(spec.box_rows);
  const std::uint64_t of_head = bytes(strides.head, shape.heads), of_row = bytes(strides.row, shape.rows),
                      of_batch = bytes(strides.batch, shape.batch);
  if (!spec.ends_with_rows) {
    return {.rank = 4,
            .dims = {columns, heads, rows, batch},
            .strides_bytes = {of_head, of_row, of_batch},
            .box = {box_columns, box_heads, box_rows, 1}};
  }
  return {.rank = 5,
          .bytes_before = rows * of_row,
          .dims = {columns, heads, rows, rows + 1, batch},
          .strides_bytes = {of_head, of_row, of_row, of_batch},
          .box = {box_columns, box_heads, box_rows, 1, 1}};
}

std::int64_t stride_argument(const AttentionProblem& problem, const Stride& stride, const TensorStrides& strides) {
  const OperandShape shape = operand_shape(problem, stride.operand);
  const bool repeats = is_of_pairs(stride.operand);
  switch (stride.dimension) {
    case Dimension::batch:
      return repeats ? launch_rules::stride_argument(strides.batch, shape.batch) : strides.batch;
    case Dimension::head:
      return repeats ? launch_rules::stride_argument(strides.head, shape.heads) : strides.head;
    case Dimension::row:
      return launch_rules::stride_argument(strides.row, shape.rows);
  }
  return 0;
}

bool has_aligned_strides(const OperandShape& shape, const TensorStrides& strides) {
  const auto aligned = [&](std::int64_t stride, std::int64_t extent) {
    return launch_rules::is_aligned_stride(stride, extent, size_of(shape.element));
  };
  return aligned(strides.batch, shape.batch) && aligned(strides.head, shape.heads) && aligned(strides.row, shape.rows);
}

bool fits_tensor_map(std::uint64_t address, const OperandShape& shape, const TensorStrides& strides) {
  // That a map takes a stride of 0 is written nowhere.
  const auto repeats = [](std::int64_t stride, std::int64_t extent) { return extent > 1 && stride == 0; };
  return address % launch_rules::kRowAlignment == 0 && has_aligned_strides(shape, strides) &&
         !repeats(strides.batch, shape.batch) && !repeats(strides.head, shape.heads) &&
         !repeats(strides.row, shape.rows);
}

bool fits_stored_tensor_map(std::uint64_t address, const OperandShape& shape, const TensorStrides& strides) {
  return fits_tensor_map(address, shape, strides) &&
         shape.columns * size_of(shape.element) % launch_rules::kRowAlignment == 0;
}

TensorStrides copy_strides(const OperandShape& shape) {
  const std::int64_t row = round_up(shape.columns, launch_rules::kRowAlignment / size_of(shape.element));
  return {.batch = shape.heads * shape.rows * row, .head = shape.rows * row, .row = row};
}

}  // namespace attune
