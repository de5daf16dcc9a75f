#pragma once

#include <vector>

#include "tests/primitives/primitive_cases.h"

namespace attune::tests {

/// Appends products of warpgroups: every shape of tile and both layouts of B.
void add_wgmma_cases(std::vector<PrimitiveCase>& cases);

}  // namespace attune::tests
