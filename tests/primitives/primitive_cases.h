#pragma once

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

const std::vector<PrimitiveCase>& primitive_cases();

}  // namespace attune::tests
