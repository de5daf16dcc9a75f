#pragma once

#include "generator/config/kernel_config.h"

namespace attune {

/// The word that a config begins with: the instructions that its kernels are written for.
enum class FamilyWord : unsigned char {
  sm80,  ///< mma.sync, ldmatrix, cp.async: compute capability 8.0 and newer
  sm90,  ///< wgmma, TMA, mbarriers: compute capability 9.0
};

/// Families as sets, for the table of config fields: each row of kernel_families() is one bit.
enum FamilySet : unsigned { kForwardSm80 = 1, kForwardSm90 = 2, kBackwardSm80 = 4, kBackwardSm90 = 8 };

}  // namespace attune
