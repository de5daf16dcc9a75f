#pragma once

#include <vector>

#include "tests/primitives/primitive_cases.h"

namespace attune::tests {

/// Appends what the CTAs of a cluster do together: barriers of each other, messages, copies to both.
void add_cluster_cases(std::vector<PrimitiveCase>& cases);

}  // namespace attune::tests
