#pragma once

#include <map>
#include <string>
#include <vector>

#include "generator/plan/kernel_plan.h"

namespace attune {

/// Items of the list wgmma_shapes of templates/primitives/warpgroup_matrix: the instructions m64nNk16 that a kernel
/// uses, each N once, ascending. Keys: n, registers (of d, n / 2); for CUDA also operands (asm's numbers of them),
/// outputs (asm's constraints of them), first_outputs (of a product that overwrites them), operand0 to operand6 (asm's
/// numbers of what follows them): the emulator's text has no use for these, and the renderer refuses what nothing uses.
/// Throws Error(invalid_argument) for an N that is no multiple of 8 from 8 to 256.
std::vector<std::map<std::string, std::string>> wgmma_shapes(std::vector<int> ns,
                                                             KernelTarget target = KernelTarget::cuda);

}  // namespace attune
