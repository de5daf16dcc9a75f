#pragma once

#include <vector>

#include "tests/primitives/primitive_cases.h"

namespace attune::tests {

/// Appends copies of boxes by tensor maps, to shared memory and back, of single ones and through a ring.
void add_tensor_map_cases(std::vector<PrimitiveCase>& cases);

}  // namespace attune::tests
