#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/primitives/test_kernel.h"

namespace attune::tests {

/// One kernel around one primitive, its input, and what its output must be.
struct PrimitiveCase {
  std::string name;
  TestKernel kernel;
  std::vector<std::uint8_t> input;
  std::size_t output_bytes = 0;
  /// Empty if the output is right, else the first thing that is wrong.
  std::function<std::string(const std::vector<std::uint8_t>& output)> complaint;
};

/// The same bits: 0 and -0 differ.
template <typename T>
bool same_bits(T a, T b) {
  std::array<std::byte, sizeof(T)> of_a, of_b;
  std::memcpy(of_a.data(), &a, sizeof(T));
  std::memcpy(of_b.data(), &b, sizeof(T));
  return of_a == of_b;
}

const std::vector<PrimitiveCase>& primitive_cases();

}  // namespace attune::tests
