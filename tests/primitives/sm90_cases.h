#pragma once

#include <vector>

#include "tests/primitives/primitive_cases.h"

namespace attune::tests {

/// Cases of Hopper's primitives: they want compute capability 9.0.
const std::vector<PrimitiveCase>& sm90_cases();

}  // namespace attune::tests
