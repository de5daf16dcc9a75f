#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tests/primitives/case_parts.h"
#include "tests/primitives/number_formats.h"
#include "tests/primitives/primitive_cases.h"

namespace attune::tests {

inline TestKernel sm90_kernel(std::string body, int threads, std::size_t shared_bytes, std::uint32_t grid = 1) {
  TestKernel kernel{std::move(body), threads, shared_bytes, grid};
  kernel.sm90 = true;
  return kernel;
}

/// Where the element at `column` of row `row` lies in a tile whose rows of `row_bytes` bytes follow each other, in
/// bytes: 16-byte chunks change places by the number of their row, as the manual's pictures of the swizzles show.
inline std::size_t swizzled_place(std::size_t row, std::size_t column, std::size_t row_bytes,
                                  std::size_t swizzle_bytes) {
  const std::size_t flat = row * row_bytes + 2 * column;
  if (swizzle_bytes == 0) return flat;
  const std::size_t line = flat / 128, chunk = flat / 16 % 8, in_chunk = flat % 16;
  const std::size_t period = swizzle_bytes / 16;  // chunks that change places with one another
  return line * 128 + (chunk / period * period + (chunk % period ^ line % period)) * 16 + in_chunk;
}

}  // namespace attune::tests
