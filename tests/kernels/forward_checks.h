#pragma once

#include <string>
#include <vector>

#include "tests/kernels/devices.h"
#include "tests/kernels/forward_case.h"

namespace attune::tests {

using Configs = std::vector<const char*>;

/// Emulators of an H200 in all modes, with an L2 that holds K and V of a few heads: a section.
Devices forward_emulators();

/// Right on the first device, and the same bits on the others.
void check_case(Devices& devices, const ForwardCase& test);

ForwardCase case_from(const std::string& problem, const std::string& config);

}  // namespace attune::tests
