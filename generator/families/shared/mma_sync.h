#pragma once

#include "generator/families/kernel_family.h"

namespace attune {

/// KernelFamily::supports of the families that are written for mma.sync: compute capability 8.0 and newer.
bool supports_mma_sync(const Question& question, Reasons* reasons);

}  // namespace attune
