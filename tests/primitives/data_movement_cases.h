#pragma once

#include <vector>

#include "tests/primitives/primitive_cases.h"

namespace attune::tests {

/// Appends what every GPU has of templates/primitives/data_movement: loads, stores, adds and copies.
void add_data_movement_cases(std::vector<PrimitiveCase>& cases);

}  // namespace attune::tests
