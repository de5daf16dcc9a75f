#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/primitives/test_kernel.h"

namespace attune::tests {

using Words = std::vector<std::uint16_t>;

/// A tensor (dim, head, row, batch) of 16-bit elements; its rows are padded, so that the strides matter.
struct Tensor {
  std::size_t dim, heads, rows, batches, row_stride;
  std::size_t elements() const { return batches * rows * heads * row_stride; }
  /// In elements.
  std::size_t at(std::size_t d, std::size_t h, std::size_t r, std::size_t b) const {
    return ((b * rows + r) * heads + h) * row_stride + d;
  }
  TensorMapRequest map(std::uint32_t box_columns, std::uint32_t box_heads, std::uint32_t box_rows, int swizzle) const {
    return {.address = 0,
            .dims = {dim, heads, rows, batches},
            .strides_bytes = {2 * row_stride, 2 * row_stride * heads, 2 * row_stride * heads * rows},
            .box = {box_columns, box_heads, box_rows, 1},
            .swizzle_bytes = swizzle};
  }
};

struct BoxAt {
  int dim, head, row, batch;
};

/// Element (column, head, row) of a box that begins at `at`, or nothing if it lies outside of the tensor.
inline std::optional<std::size_t> element_of(const Tensor& tensor, const BoxAt& at, std::size_t column,
                                             std::size_t head, std::size_t row) {
  const auto d = at.dim + static_cast<long>(column), h = at.head + static_cast<long>(head),
             r = at.row + static_cast<long>(row), b = static_cast<long>(at.batch);
  const auto inside = [](long x, std::size_t size) { return x >= 0 && x < static_cast<long>(size); };
  if (!inside(d, tensor.dim) || !inside(h, tensor.heads) || !inside(r, tensor.rows) || !inside(b, tensor.batches))
    return std::nullopt;
  return tensor.at(static_cast<std::size_t>(d), static_cast<std::size_t>(h), static_cast<std::size_t>(r),
                   static_cast<std::size_t>(b));
}

/// As a kernel's source names them.
inline std::string coordinates(const BoxAt& at) {
  return std::to_string(at.dim) + ", " + std::to_string(at.head) + ", " + std::to_string(at.row) + ", " +
         std::to_string(at.batch);
}

}  // namespace attune::tests
