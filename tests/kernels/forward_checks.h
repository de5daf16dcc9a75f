#pragma once

#include <string>
#include <vector>

#include "tests/case_draw.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/forward_case.h"

namespace attune::tests {

using Configs = std::vector<const char*>;

/// SMs of an emulated device on which few heads are several tiles for each persistent CTA.
inline constexpr int kFewSms = 4;

/// Emulators of an H200 in all modes, with an L2 that holds K and V of a few heads: a section. `sms`: of an H200 with
/// so many SMs.
Devices forward_emulators(int sms = 132);

/// Heads by which a device has at least as many tiles for each SM as an H200 by `of_h200`.
int heads_for(const Devices& devices, int of_h200);

/// Right on the first device, and the same bits on the others.
void check_case(Devices& devices, const ForwardCase& test);

ForwardCase case_from(const std::string& problem, const std::string& config);

/// Words of problems: each config meets each length under each mask, at head dim 16.
struct RowShapes {
  std::string heads;
  std::vector<std::string> lengths, masks;
};

/// check_case() of them: both types by turns, and an LSE that nobody asks for.
void check_rows(Devices& devices, const Configs& configs, const RowShapes& shapes);

}  // namespace attune::tests
