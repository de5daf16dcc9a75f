#include "generator/families/shared/chunk_swizzle.h"

#include <numeric>

namespace attune {

ChunkSwizzle chunk_swizzle(int row_elements) {
  // The bank groups of one chunk of eight rows are (chunks * row + chunk) mod 8: with g = gcd(chunks, 8), rows that
  // differ by a multiple of 8 / g collide; permuting g neighbouring chunks by row / (8 / g) tells them apart.
  const int colliding = std::gcd(row_elements / 8, 8);
  ChunkSwizzle swizzle{colliding - 1, 0};
  for (int period = 8 / colliding; period > 1; period /= 2) ++swizzle.shift;
  return swizzle;
}

}  // namespace attune
